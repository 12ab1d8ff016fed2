//! What the clients of a sandbox read and write.

use testbed::ObjectStorage;

use super::{
    lock_service::RESOURCE,
    settings::{Settings, StoreKind, Switch},
};
use crate::{
    client::setup::{Guard, Offer, StoreSetup},
    record::{Actor, EventKind},
    scenario::stage::{scene::Scene, storage::Storage, table::Table},
};

/// What the table has before anybody writes.
const EMPTY: &str = "empty";

pub(super) enum Store {
    /// A storage server, and the object storage beneath it if there is one.
    Server(Box<(Storage, Option<ObjectStorage>)>),
    /// A table of PostgreSQL.
    Table(Table),
}

impl Store {
    /// Starts a store that checks what the world's storage checks.
    pub(super) async fn start(kind: StoreKind, scene: &mut Scene) -> anyhow::Result<Self> {
        let store = match kind {
            StoreKind::Sqlite => Self::server(Storage::start(scene).await?, None),
            StoreKind::Postgres => {
                let url = scene.database().await?;
                Self::server(Storage::start_over(&url, scene).await?, None)
            }
            StoreKind::ObjectStorage => {
                let beneath = ObjectStorage::start_seaweedfs().await?;
                let storage = Storage::start_over(&beneath.url("sandbox"), scene).await?;
                Self::server(storage, Some(beneath))
            }
            StoreKind::PostgresTable => Self::Table(Table::create(RESOURCE, EMPTY, scene).await?),
        };
        scene.record(Actor::Storage, None, EventKind::Started);
        scene.record(Actor::Storage, None, EventKind::StoreIs { store: kind.name().to_owned() });
        Ok(store)
    }

    fn server(storage: Storage, beneath: Option<ObjectStorage>) -> Self {
        Self::Server(Box::new((storage, beneath)))
    }

    /// What a client needs that claims, and is checked, as these settings say.
    pub(super) fn setup(&self, Settings { fence, claims, .. }: Settings) -> StoreSetup {
        match self {
            Self::Server(server) => server.0.setup(match claims {
                Switch::On => Offer::TokenAndHolder,
                Switch::Off => Offer::WithWrites,
            }),
            Self::Table(table) => table.setup(match (fence, claims) {
                (Switch::Off, _) => Guard::None,
                (Switch::On, Switch::Off) => Guard::Present,
                (Switch::On, Switch::On) => Guard::Claim,
            }),
        }
    }
}

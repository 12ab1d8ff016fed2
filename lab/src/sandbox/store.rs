//! What the clients of a sandbox read and write.

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
    /// A storage server on SQLite.
    Server(Box<Storage>),
    /// A table of PostgreSQL.
    Table(Table),
}

impl Store {
    /// Starts a store that checks what the world's storage checks.
    pub(super) async fn start(kind: StoreKind, scene: &mut Scene) -> anyhow::Result<Self> {
        let store = match kind {
            StoreKind::Sqlite => Self::Server(Box::new(Storage::start(scene).await?)),
            StoreKind::Postgres => Self::Table(Table::create(RESOURCE, EMPTY, scene).await?),
        };
        scene.record(Actor::Storage, None, EventKind::Started);
        Ok(store)
    }

    /// What a client needs that claims, and is checked, as these settings say.
    pub(super) fn setup(&self, Settings { fence, claims, .. }: Settings) -> StoreSetup {
        match self {
            Self::Server(server) => server.setup(match claims {
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

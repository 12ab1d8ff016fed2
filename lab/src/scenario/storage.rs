//! A private storage server, with a lock and clients that write to it.

use lock_client::storage::Storage;

use super::{
    client::{Client, Work},
    lock::Lock,
};
use crate::{
    record::{Actor, Outcome, Recorder, World},
    servers::StorageServer,
};

const RESOURCE: &str = "invoice-7";
pub(super) const VALUE_1: &str = "by client 1";
pub(super) const VALUE_2: &str = "by client 2";

pub(super) struct StorageStage {
    world: World,
    lock: Lock,
    server: StorageServer,
}

impl StorageStage {
    pub(super) async fn start(
        world: World,
        enforcement: &str,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Self> {
        let lock = Lock::start(world, RESOURCE, recorder).await?;
        let server = StorageServer::start(&["--enforcement", enforcement]).await?;
        Ok(Self { world, lock, server })
    }

    pub(super) fn lock(&self) -> &Lock {
        &self.lock
    }

    pub(super) fn client(&self, actor: Actor) -> anyhow::Result<Client> {
        let value = if actor == Actor::Client1 { VALUE_1 } else { VALUE_2 };
        let (redis, storage) = (&self.lock.url(), self.server.url());
        Client::start(self.world, actor, Work::Put { resource: RESOURCE, value, redis, storage })
    }

    /// How it ended.
    pub(super) async fn outcome(&self, recorder: &Recorder) -> anyhow::Result<Outcome> {
        let end = Storage::new(self.server.url())?.read(&RESOURCE.parse()?).await?;
        let value = end.map(|value| String::from_utf8(value.bytes.into())).transpose()?;
        Ok(Outcome::of(recorder.events_of(self.world), value))
    }
}

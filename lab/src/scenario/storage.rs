//! A private storage server, with a lock and clients that write to it.

use lock_client::storage::Storage;

use super::{
    client::Client,
    lock::Lock,
    two_clients::{self, Course, HeldBack},
    work::Work,
};
use crate::{
    network::Network,
    outcome::Outcome,
    record::{Actor, Recorder},
    servers::StorageServer,
};

const RESOURCE: &str = "invoice-7";
pub(super) const VALUE_1: &str = "by client 1";
pub(super) const VALUE_2: &str = "by client 2";

pub(super) struct StorageStage {
    lock: Lock,
    server: StorageServer,
}

impl StorageStage {
    pub(super) async fn start(enforcement: &str, recorder: &mut Recorder) -> anyhow::Result<Self> {
        let lock = Lock::start(RESOURCE, recorder).await?;
        let server = StorageServer::start(&["--enforcement", enforcement]).await?;
        Ok(Self { lock, server })
    }

    /// A network between client 1 and the storage server.
    pub(super) async fn network(&self) -> anyhow::Result<Network> {
        let address = self.server.url().trim_start_matches("http://").parse()?;
        Network::to(address).await
    }

    /// Plays a course in which each client writes its value.
    pub(super) async fn play(
        &self,
        course: Course,
        held_back: HeldBack<'_>,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let client = |actor| {
            let value = if actor == Actor::Client1 { VALUE_1 } else { VALUE_2 };
            let storage = match (actor, held_back) {
                (Actor::Client1, HeldBack::ByNetwork(network)) => {
                    format!("http://{}", network.address())
                }
                _ => self.server.url().to_owned(),
            };
            let (redis, storage) = (&self.lock.url(), &*storage);
            let work = Work::Put { resource: RESOURCE, value, redis, storage };
            Client::start(actor, work)
        };
        two_clients::play(course, held_back, &self.lock, client, recorder).await?;
        let end = Storage::new(self.server.url())?.read(&RESOURCE.parse()?).await?;
        // As the storage tells it, and not as the clients do.
        let token = end.as_ref().and_then(|value| value.token);
        let value = end.map(|value| String::from_utf8(value.bytes.into())).transpose()?;
        Ok(two_clients::outcome(recorder.events(), value, token))
    }
}

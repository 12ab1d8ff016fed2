//! A private storage server, with a lock and clients that write to it.

use fence::Token;
use lock_client::storage::Storage;

use super::{
    Work,
    driver::Client,
    lock::Lock,
    two_clients::{self, Course, HeldBack},
};
use crate::{
    network::Network,
    record::{Actor, Outcome, Recorder},
    servers::StorageServer,
};

const RESOURCE: &str = "invoice-7";
pub(crate) const VALUE_1: &str = "by client 1";
pub(crate) const VALUE_2: &str = "by client 2";

pub(crate) struct StorageStage {
    lock: Lock,
    server: StorageServer,
}

impl StorageStage {
    pub(crate) async fn start(enforcement: &str, recorder: &mut Recorder) -> anyhow::Result<Self> {
        let lock = Lock::start(RESOURCE, recorder).await?;
        let server = StorageServer::start(&["--enforcement", enforcement]).await?;
        Ok(Self { lock, server })
    }

    /// A network between client 1 and the storage server.
    pub(crate) async fn network(&self) -> anyhow::Result<Network> {
        let address = self.server.url().trim_start_matches("http://").parse()?;
        Network::to(address).await
    }

    /// Plays a course in which each client writes its value.
    pub(crate) async fn play(
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
        let (value, token) = kept(&self.server, RESOURCE).await?;
        Ok(two_clients::outcome(recorder.events(), value, token))
    }
}

/// The value that a storage server has in the end, and its token: as the server tells it, and not as
/// the clients do.
pub(crate) async fn kept(
    server: &StorageServer,
    resource: &str,
) -> anyhow::Result<(Option<String>, Option<Token>)> {
    let end = Storage::new(server.url())?.read(&resource.parse()?).await?;
    let token = end.as_ref().and_then(|value| value.token);
    let value = end.map(|value| String::from_utf8(value.bytes.into())).transpose()?;
    Ok((value, token))
}

//! A private storage server, with a lock and clients that write to it.

use anyhow::Context;
use fence::Token;
use lock_client::storage::Storage;

use super::{
    Work, Write,
    driver::Client,
    lock::{LONG_TTL, Lock, TTL},
    two_clients::{self, Course, HeldBack, VALUE_1, VALUE_2, ending_with},
};
use crate::programs::built;
use crate::record::{Actor, Checks, Danger, Outcome, Recorder, World};
use testbed::{Proxy, StorageServer};

const RESOURCE: &str = "invoice-7";

/// A storage that checks nothing, to which client 1 writes last, and one that checks tokens.
pub(crate) const CHECKED_OR_NOT: [World; 2] = [
    World {
        name: "unfenced",
        title: "WITHOUT the fence: the storage accepts every write",
        danger: Danger::Strikes,
        checks: Checks::Nothing,
        end: &ending_with(VALUE_1, 33, [1, 0, 1]),
    },
    World {
        name: "fenced",
        title: "WITH the fence: the storage checks each write's token",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &ending_with(VALUE_2, 34, [0, 1, 0]),
    },
];

pub(crate) struct StorageStage {
    lock: Lock,
    server: StorageServer,
}

impl StorageStage {
    pub(crate) async fn start(checks: Checks, recorder: &mut Recorder) -> anyhow::Result<Self> {
        let lock = Lock::start(RESOURCE, recorder).await?;
        Ok(Self { lock, server: server(checks).await? })
    }

    /// A network between client 1 and the storage server.
    pub(crate) async fn network(&self) -> anyhow::Result<Proxy> {
        Proxy::start(self.server.address()).await
    }

    /// Plays a course in which each client writes its value.
    pub(crate) async fn play(
        &self,
        course: Course,
        held_back: HeldBack<'_>,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let client = |actor| {
            let (value, ttl) =
                if actor == Actor::Client1 { (VALUE_1, TTL) } else { (VALUE_2, LONG_TTL) };
            let storage = match (actor, held_back) {
                (Actor::Client1, HeldBack::ByNetwork(network)) => network.url("http"),
                _ => self.server.url().to_owned(),
            };
            let (redis, storage) = (&[self.lock.url()], &*storage);
            let write = Write { resource: RESOURCE, value, ttl, redis, storage };
            Client::start(actor, Work::Put { write })
        };
        two_clients::play(course, held_back, &self.lock, client, recorder).await?;
        let Kept { value, token, .. } = kept(&self.server, RESOURCE).await?;
        Ok(two_clients::outcome(recorder.events(), value, token))
    }
}

/// What a storage server has in the end: as the server tells it, and not as the clients do.
pub(crate) struct Kept {
    pub(crate) value: String,
    pub(crate) token: Option<Token>,
    /// How many writes it has accepted.
    pub(crate) version: u64,
}

/// A storage server that checks tokens, or nothing.
pub(crate) async fn server(checks: Checks) -> anyhow::Result<StorageServer> {
    let enforcement = match checks {
        Checks::Nothing => "off",
        Checks::Tokens => "enforce",
    };
    StorageServer::start(&built("storage-server")?, &["--enforcement", enforcement]).await
}

pub(crate) async fn kept(server: &StorageServer, resource: &str) -> anyhow::Result<Kept> {
    let end = Storage::new(server.url())?.read(&resource.parse()?).await?;
    let end = end.context("nothing was written")?;
    let value = String::from_utf8(end.bytes.into())?;
    Ok(Kept { value, token: end.token, version: end.version })
}

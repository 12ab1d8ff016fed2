//! A private storage server.

use std::time::Duration;

use anyhow::Context;
use fence::{Fence, Holder, Token};
use lock_client::storage;
use testbed::{
    ObjectStorage, Proxy, StorageServer,
    proxy::{HeldRequest, Hold},
    wait::until_async,
};

use super::scene::Scene;
use crate::{
    client::setup::{Offer, StoreSetup},
    programs,
    record::{Actor, Checks, EventKind, Recorder},
};

/// How long a server may take to write again. A scenario says whether that was too long.
const WRITES_AGAIN_WITHIN: Duration = Duration::from_secs(120);

pub(crate) struct Storage {
    server: StorageServer,
}

/// What the server itself reports in the end.
pub(crate) struct Stored {
    pub(crate) value: String,
    pub(crate) token: Option<Token>,
    /// The number of writes that it has accepted.
    pub(crate) version: u64,
}

impl Storage {
    /// Starts a server on SQLite that checks what this world's storage checks.
    pub(crate) async fn start(scene: &Scene) -> anyhow::Result<Self> {
        let (program, checks) = (programs::storage_server()?, enforcement(scene));
        Ok(Self { server: StorageServer::start(&program, &checks).await? })
    }

    /// Starts a server on another database that checks what this world's storage checks.
    pub(crate) async fn start_over(database_url: &str, scene: &Scene) -> anyhow::Result<Self> {
        // Other databases than object storage ignore its keys.
        let program = programs::storage_server()?.with_variables(ObjectStorage::VARIABLES);
        let server = StorageServer::start_on(&program, database_url, &enforcement(scene)).await?;
        Ok(Self { server })
    }

    /// Starts a server that checks tokens, over this database and with further arguments.
    pub(crate) async fn start_on(database_url: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let program = programs::storage_server()?;
        Ok(Self { server: StorageServer::start_on(&program, database_url, arguments).await? })
    }

    /// Writes to a resource of its own until the server accepts it.
    pub(crate) async fn writes_again(&self) -> anyhow::Result<()> {
        let storage = storage::Storage::new(self.server.url())?;
        let resource = "whether-it-writes".parse()?;
        let fence = Fence { token: Token::new(1)?, holder: Holder::EMPTY };
        let is_written =
            async || Ok(storage.write(&resource, &fence, "text/plain", "").await.is_ok());
        until_async(WRITES_AGAIN_WITHIN, is_written).await.context("the storage does not write")
    }

    /// What a client needs that writes to the server directly.
    pub(crate) fn setup(&self, offer: Offer) -> StoreSetup {
        StoreSetup::Server { url: self.server.url().to_owned(), offer }
    }

    /// Starts a network on the way to the server, which can hold back a write.
    pub(crate) async fn network(&self, scene: &Scene) -> anyhow::Result<SlowNetwork> {
        let proxy = Proxy::start(self.server.address()).await?;
        Ok(SlowNetwork { proxy, recorder: scene.recorder.clone() })
    }

    pub(crate) async fn stored(&self, resource: &str) -> anyhow::Result<Stored> {
        let stored = storage::Storage::new(self.server.url())?.read(&resource.parse()?).await?;
        let storage::Value { bytes, token, version, .. } = stored.context("nothing was written")?;
        Ok(Stored { value: String::from_utf8(bytes.into())?, token, version })
    }
}

fn enforcement(scene: &Scene) -> [&'static str; 2] {
    let enforcement = match scene.world.checks {
        Checks::Nothing => "off",
        Checks::Tokens => "enforce",
    };
    ["--enforcement", enforcement]
}

/// A network that can hold back a write.
pub(crate) struct SlowNetwork {
    proxy: Proxy,
    recorder: Recorder,
}

/// A write that the network holds back.
pub(crate) struct HeldWrite {
    request: HeldRequest,
    token: Option<Token>,
    recorder: Recorder,
}

impl SlowNetwork {
    /// What a client needs that writes to the server through this network.
    pub(crate) fn setup(&self, offer: Offer) -> StoreSetup {
        StoreSetup::Server { url: self.proxy.url("http"), offer }
    }

    /// Holds back the next write.
    pub(crate) fn hold_write(&self) -> Hold {
        self.proxy.hold("PUT ")
    }

    /// Waits until the network holds back the write, which has this token.
    pub(crate) async fn caught(
        &self,
        hold: Hold,
        token: Option<Token>,
    ) -> anyhow::Result<HeldWrite> {
        let (request, recorder) = (hold.caught().await?, self.recorder.clone());
        recorder.record(Actor::Network, token, EventKind::RequestHeld);
        Ok(HeldWrite { request, token, recorder })
    }
}

impl HeldWrite {
    /// Delivers the write.
    pub(crate) fn deliver(self) {
        self.recorder.record(Actor::Network, self.token, EventKind::RequestDelivered);
        self.request.deliver();
    }
}

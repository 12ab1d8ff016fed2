//! A private storage server.

use anyhow::Context;
use fence::Token;
use lock_client::storage;
use testbed::{
    Proxy, StorageServer,
    proxy::{HeldRequest, Hold},
};

use super::scene::Scene;
use crate::{
    client::setup::{Offer, StoreSetup},
    programs,
    record::{Actor, Checks, EventKind, Recorder},
};

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
    /// Starts a server that checks what this world's storage checks.
    pub(crate) async fn start(scene: &Scene) -> anyhow::Result<Self> {
        let enforcement = match scene.world.checks {
            Checks::Nothing => "off",
            Checks::Tokens => "enforce",
        };
        let program = programs::storage_server()?;
        let server = StorageServer::start(&program, &["--enforcement", enforcement]).await?;
        Ok(Self { server })
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

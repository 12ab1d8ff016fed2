//! A private storage server.

use anyhow::Context;
use fence::Token;
use lock_client::storage;
use testbed::{StorageServer, network::Network};

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

    /// A network on the way to the server.
    pub(crate) async fn network(&self, scene: &Scene) -> anyhow::Result<SlowNetwork> {
        let address = self.server.url().trim_start_matches("http://").parse()?;
        let network = Network::to(address).await?;
        Ok(SlowNetwork { network, recorder: scene.recorder.clone() })
    }

    pub(crate) async fn stored(&self, resource: &str) -> anyhow::Result<Stored> {
        let stored = storage::Storage::new(self.server.url())?.read(&resource.parse()?).await?;
        let storage::Value { bytes, token, version, .. } = stored.context("nothing was written")?;
        Ok(Stored { value: String::from_utf8(bytes.into())?, token, version })
    }
}

/// A network that can hold back what clients send.
pub(crate) struct SlowNetwork {
    network: Network,
    recorder: Recorder,
}

impl SlowNetwork {
    /// What a client needs that writes to the server through this network.
    pub(crate) fn setup(&self, offer: Offer) -> StoreSetup {
        StoreSetup::Server { url: format!("http://{}", self.network.address()), offer }
    }

    /// Holds back everything that is sent from now on.
    pub(crate) fn hold(&self) {
        self.network.hold();
    }

    /// Waits until the network holds back a write with this token.
    pub(crate) async fn wait_for_write(&self, token: Option<Token>) -> anyhow::Result<()> {
        self.network.holds_something().await?;
        self.recorder.record(Actor::Network, token, EventKind::RequestHeld);
        Ok(())
    }

    /// Delivers the write with this token that the network held back.
    pub(crate) fn deliver(&self, token: Option<Token>) {
        self.recorder.record(Actor::Network, token, EventKind::RequestDelivered);
        self.network.deliver();
    }
}

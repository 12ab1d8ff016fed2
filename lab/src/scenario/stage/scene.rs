//! The world that a scenario is replayed in, and its record.

use std::time::Duration;

use fence::Token;
use testbed::Databases;

use super::{client::Client, crowd::Crowd, process::ClientProcess};
use crate::{
    client::setup::{CrowdSetup, LockSetup, Setup, StoreSetup},
    record::{Actor, EventKind, Recorder, World},
};

/// The world that a scenario is replayed in, and its record.
pub(crate) struct Scene {
    pub(crate) world: &'static World,
    pub(crate) recorder: Recorder,
    ttl_factor: u32,
    databases: Databases,
}

impl Scene {
    pub(crate) fn new(world: &'static World, recorder: Recorder, ttl_factor: u32) -> Self {
        Self { world, recorder, ttl_factor, databases: Databases::default() }
    }

    /// The ttl of a lease that will expire, but not before its client is paused. On a busy machine
    /// that takes longer.
    pub(crate) fn ttl(&self, on_an_idle_machine: Duration) -> Duration {
        on_an_idle_machine * self.ttl_factor
    }

    /// Goes on in another world.
    pub(crate) fn enter(&mut self, world: &'static World) {
        self.world = world;
        self.recorder.enter(world.name);
    }

    pub(crate) fn record(&self, actor: Actor, token: impl Into<Option<Token>>, kind: EventKind) {
        self.recorder.record(actor, token, kind);
    }

    /// Makes a database in PostgreSQL, and returns its URL.
    pub(crate) async fn database(&mut self) -> anyhow::Result<String> {
        self.databases.create().await
    }

    /// Starts a client that takes a lock and works on a resource of the same name.
    pub(crate) fn client(
        &self,
        actor: Actor,
        resource: &str,
        lock: LockSetup,
        store: StoreSetup,
    ) -> anyhow::Result<Client> {
        let (name, resource) = (actor.title().to_owned(), resource.parse()?);
        let setup = Setup { name, resource, lock, store, crowd: None };
        Ok(Client::new(ClientProcess::start(actor, &setup)?, self.recorder.clone()))
    }

    /// Starts a crowd of such clients.
    pub(crate) fn crowd(
        &self,
        crowd: CrowdSetup,
        resource: &str,
        lock: LockSetup,
        store: StoreSetup,
    ) -> anyhow::Result<Crowd> {
        let (name, resource) = (Actor::Others.title().to_owned(), resource.parse()?);
        let setup = Setup { name, resource, lock, store, crowd: Some(crowd) };
        let process = ClientProcess::start(Actor::Others, &setup)?;
        Ok(Crowd::new(process, self.recorder.clone()))
    }
}

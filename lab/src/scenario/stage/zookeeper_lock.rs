//! A lock in a private ZooKeeper.

use anyhow::Context;
use fence::{Holder, ResourceName};
use lock_client::{Locks, zookeeper};
use testbed::{Proxy, ZooKeeper, wait::until_async};

use super::{redis_lock::EXPIRES_WITHIN, scene::Scene};
use crate::{
    client::setup::LockSetup,
    record::{Actor, EventKind, Recorder},
};

pub(crate) struct ZooKeeperLock {
    server: ZooKeeper,
    /// The way of one client, which can be cut.
    way: Proxy,
    /// They only look at the lock.
    locks: Locks,
    resource: ResourceName,
    recorder: Recorder,
}

impl ZooKeeperLock {
    pub(crate) async fn start(resource: &str, scene: &Scene) -> anyhow::Result<Self> {
        let server = ZooKeeper::start().await?;
        let way = Proxy::start(server.address(0)).await?;
        let locks = Locks::new(zookeeper::ZooKeeper::open(&server.url())?);
        let (resource, recorder) = (resource.parse()?, scene.recorder.clone());
        Ok(Self { server, way, locks, resource, recorder })
    }

    /// What a client needs to take this lock.
    pub(crate) fn setup(&self) -> LockSetup {
        LockSetup::ZooKeeper(self.server.url())
    }

    /// The same over a way that can be cut.
    pub(crate) fn setup_that_can_be_cut(&self) -> LockSetup {
        LockSetup::ZooKeeper(self.way.url("zookeeper"))
    }

    /// Cuts a client off, which connects over the way that can be cut.
    pub(crate) fn cut_off(&self, client: Actor) {
        self.way.cut();
        self.record(EventKind::ClientCutOff { client });
    }

    /// Lets the client through again.
    pub(crate) fn connect_again(&self, client: Actor) {
        self.way.mend();
        self.record(EventKind::ClientConnected { client });
    }

    /// Waits until the present owner's session has expired.
    pub(crate) async fn expires(&self, whose: Actor) -> anyhow::Result<()> {
        let owner = self.owner().await?.context("nobody holds the lock")?;
        let has_expired = async || Ok(self.owner().await?.as_ref() != Some(&owner));
        until_async(EXPIRES_WITHIN, has_expired).await.context("the session did not expire")?;
        self.record(EventKind::LeaseExpired { whose });
        Ok(())
    }

    /// Records that a client has kept its lock.
    pub(crate) async fn check_kept_by(&self, whose: Actor) -> anyhow::Result<()> {
        self.owner().await?.context("nobody holds the lock")?;
        self.record(EventKind::LockKept { whose });
        Ok(())
    }

    async fn owner(&self) -> anyhow::Result<Option<Holder>> {
        let status = self.locks.status(&self.resource).await?;
        Ok(status.held.map(|held| held.ownership.holder))
    }

    fn record(&self, kind: EventKind) {
        self.recorder.record(Actor::ZooKeeper, None, kind);
    }
}

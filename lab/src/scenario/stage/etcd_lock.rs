//! A lock in a private etcd.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use fence::{Holder, ResourceName};
use lock_client::{Locks, etcd};
use testbed::{Etcd, wait::until_async};

use super::{redis_lock::EXPIRES_WITHIN, scene::Scene};
use crate::{
    client::setup::LockSetup,
    record::{Actor, EventKind, Recorder},
};

/// How long etcd has to answer. On a busy machine, one that has just started is slow.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub(crate) struct EtcdLock {
    server: Etcd,
    /// They only look at the lock.
    locks: Locks,
    resource: ResourceName,
    recorder: Recorder,
}

impl EtcdLock {
    pub(crate) async fn start(resource: &str, scene: &Scene) -> anyhow::Result<Self> {
        let server = Etcd::start().await?;
        let locks = Locks::new(etcd::Etcd::open(&server.url())?.answer_within(ANSWER_WITHIN));
        Ok(Self { server, locks, resource: resource.parse()?, recorder: scene.recorder.clone() })
    }

    /// What a client needs to take this lock.
    pub(crate) fn setup(&self) -> LockSetup {
        LockSetup::Etcd(self.server.url())
    }

    /// Waits until the present owner's lease has expired.
    pub(crate) async fn expires(&self, whose: Actor) -> anyhow::Result<()> {
        let owner = self.owner().await?.context("nobody holds the lock")?;
        let has_expired = async || Ok(self.owner().await?.as_ref() != Some(&owner));
        until_async(EXPIRES_WITHIN, has_expired).await.context("the lease did not expire")?;
        self.record(EventKind::LeaseExpired { whose });
        Ok(())
    }

    pub(crate) async fn save_snapshot(&self) -> anyhow::Result<PathBuf> {
        let snapshot = self.server.save_snapshot().await?;
        self.record(EventKind::SnapshotSaved);
        Ok(snapshot)
    }

    /// Kills etcd, and starts it again with the data of a snapshot.
    pub(crate) async fn restore(&mut self, snapshot: &Path) -> anyhow::Result<()> {
        self.server.restore(snapshot).await?;
        self.record(EventKind::SnapshotRestored);
        Ok(())
    }

    async fn owner(&self) -> anyhow::Result<Option<Holder>> {
        let status = self.locks.status(&self.resource).await?;
        Ok(status.held.map(|held| held.ownership.holder))
    }

    fn record(&self, kind: EventKind) {
        self.recorder.record(Actor::Etcd, None, kind);
    }
}

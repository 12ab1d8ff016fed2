//! The lock of a client: one of several kinds.

use std::time::Duration;

use anyhow::{Context, bail};
use fence::{Fence, Token};
use lock_client::{
    Lease, etcd::Etcd, postgres::Postgres, redis::Redis, redlock::Redlock, zookeeper::ZooKeeper,
};

use super::{
    advisory_lock::AdvisoryLock,
    command::Terms,
    key_lock::KeyLock,
    lease::LeaseLock,
    naive_redlock::NaiveRedlock,
    report::{Report, Reports},
    row_lock::RowLock,
    setup::{LockSetup, Setup},
};
use crate::record::EventKind;

/// The lock of a client, and what the client holds of it.
pub(super) enum Lock {
    Lease(LeaseLock),
    Key(KeyLock),
    Advisory(AdvisoryLock),
    Row(RowLock),
    NaiveRedlock(NaiveRedlock),
    None,
}

impl Lock {
    pub(super) async fn connect(
        Setup { name, resource, lock, .. }: &Setup,
    ) -> anyhow::Result<Self> {
        Ok(match lock {
            LockSetup::Redis(url) => Self::Lease(LeaseLock::new(Redis::open(url)?, 1, resource)),
            LockSetup::Row { url, expiry } => {
                Self::Row(RowLock::connect(url, resource, name, *expiry).await?)
            }
            LockSetup::Advisory(url) => Self::Advisory(AdvisoryLock::connect(url, resource).await?),
            LockSetup::Etcd(url) => Self::Lease(LeaseLock::new(Etcd::open(url)?, 1, resource)),
            LockSetup::ZooKeeper(url) => {
                // A ZooKeeper that has just started is slow.
                let zookeeper = ZooKeeper::open(url)?.answer_within(Duration::from_secs(2));
                Self::Lease(LeaseLock::new(zookeeper, 1, resource))
            }
            LockSetup::Postgres(url) => {
                Self::Lease(LeaseLock::new(Postgres::open(url)?, 1, resource))
            }
            LockSetup::Redlock(nodes) => {
                Self::Lease(LeaseLock::new(Redlock::open(nodes)?, nodes.len(), resource))
            }
            LockSetup::Key(url) => Self::Key(KeyLock::connect(url, resource, name).await?),
            LockSetup::NaiveRedlock { nodes, kind } => {
                Self::NaiveRedlock(NaiveRedlock::new(nodes, resource, *kind))
            }
            LockSetup::None => Self::None,
        })
    }

    pub(super) async fn acquire(
        &mut self,
        terms: Terms,
        reports: &mut Reports,
    ) -> anyhow::Result<()> {
        match self {
            Self::Lease(lock) => lock.acquire(terms, reports).await,
            Self::Key(lock) => lock.acquire(terms, reports).await,
            Self::Advisory(lock) => lock.acquire(terms, reports).await,
            Self::Row(lock) => lock.acquire(terms, reports).await,
            Self::NaiveRedlock(lock) => {
                reports.add(lock.acquire(terms).await);
                Ok(())
            }
            Self::None => bail!("there is no lock to acquire"),
        }
    }

    /// Checks whether the client still holds the lock, as far as it knows.
    pub(super) fn check(&mut self) -> anyhow::Result<Report> {
        match self {
            Self::Lease(lock) => lock.check(),
            Self::NaiveRedlock(lock) => {
                Ok(EventKind::LeaseChecked { remaining_ms: lock.remaining_ms()? }.into())
            }
            Self::Key(_) | Self::Advisory(_) | Self::Row(_) | Self::None => {
                bail!("there is no lease to check")
            }
        }
    }

    pub(super) async fn release(&mut self) -> anyhow::Result<EventKind> {
        match self {
            Self::Lease(lock) => lock.release().await,
            Self::NaiveRedlock(lock) => lock.release().await,
            Self::Advisory(lock) => lock.release().await,
            Self::Row(lock) => lock.release().await,
            Self::Key(_) => bail!("a key is not released, but deleted"),
            Self::None => bail!("there is no lock to release"),
        }
    }

    /// The lease, if the lock is one of the lock client.
    pub(super) fn lease(&self) -> anyhow::Result<&Lease> {
        match self {
            Self::Lease(lock) => lock.lease(),
            _ => bail!("this lock has no leases"),
        }
    }

    /// The token and holder as of the last check. The lease may be over by now.
    pub(super) fn fence(&self) -> anyhow::Result<&Fence> {
        match self {
            Self::Lease(lock) => lock.fence(),
            _ => bail!("this lock has no tokens"),
        }
    }

    /// The token as of the last check, if the lock has tokens.
    pub(super) fn token(&self) -> Option<Token> {
        self.fence().ok().map(|fence| fence.token)
    }

    pub(super) fn key(&mut self) -> anyhow::Result<&mut KeyLock> {
        match self {
            Self::Key(lock) => Some(lock),
            _ => None,
        }
        .context("this lock is not a key")
    }
}

//! Locks of any kind, as the bench uses them.

use std::time::Duration;

use fence::ResourceName;
use lock_client::{Lease, Locks, Order, Terms, Ttl, backend};
use redis::aio::MultiplexedConnection;

use super::{lines::MANY, python::Python};
use crate::servers::Redis;

/// How long every lock is granted for: longer than anybody here keeps it, so that nothing is renewed.
pub(super) const TTL: Duration = Duration::from_secs(30);

/// Who is measured.
pub(super) struct Peers {
    pub(super) ping: MultiplexedConnection,
    pub(super) fenced: Fenced,
    /// As many clients as there are to be at once, with connections of their own.
    pub(super) fenced_apart: Vec<Fenced>,
    pub(super) rslock: RsLock,
    pub(super) python: Python,
}

impl Peers {
    pub(super) async fn of(redis: &Redis) -> anyhow::Result<Self> {
        let url = redis.url();
        let apart = (0..=MANY).map(|_| Fenced::open(&url));
        // Ours and rslock's are of the same kind.
        let ping = redis::Client::open(&*url)?.get_multiplexed_async_connection().await?;
        Ok(Self {
            ping,
            fenced: Fenced::open(&url)?,
            fenced_apart: apart.collect::<anyhow::Result<_>>()?,
            rslock: RsLock::open(&url)?,
            python: Python::start(&url)?,
        })
    }
}

/// Locks of one kind. A clone is the same client, with the same connection.
pub(super) trait Peer: Clone + Send + Sync + 'static {
    type Held: Send;

    /// The command that asks Redis for a lock.
    const ASKS_BY: &'static str;

    /// How often so many waiters, of so many clients, ask until all of them wait.
    fn asks_until_waiting(&self, waiters: usize, clients: usize) -> usize;

    /// Waits for the lock, and takes it, with its token if there is one.
    fn acquire(
        &self,
        name: &ResourceName,
    ) -> impl Future<Output = anyhow::Result<Self::Held>> + Send;

    fn release(&self, held: Self::Held) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// Our own locks.
#[derive(Clone, Debug)]
pub(super) struct Fenced {
    locks: Locks,
    terms: Terms,
    order: Order,
}

impl Fenced {
    pub(super) fn open(url: &str) -> anyhow::Result<Self> {
        Ok(Self {
            locks: Locks::new(backend::Redis::open(url)?),
            terms: Terms::new(Ttl::new(TTL)?),
            order: Order::WokenAtOnce,
        })
    }

    /// The same client, whose waiters stand in a queue.
    pub(super) fn fair(&self) -> Self {
        Self { locks: self.locks.clone(), terms: self.terms.fair(), order: Order::Fair }
    }
}

impl Peer for Fenced {
    type Held = Lease;

    const ASKS_BY: &'static str = "evalsha";

    /// Each asks once, and those that Redis is to wake once more, when they have subscribed.
    fn asks_until_waiting(&self, waiters: usize, clients: usize) -> usize {
        match self.order {
            Order::Fair => 2 * waiters,
            Order::WokenAtOnce => waiters + waiters.min(clients),
        }
    }

    async fn acquire(&self, name: &ResourceName) -> anyhow::Result<Lease> {
        let lease = self.locks.acquire(name, self.terms).await?;
        lease.token()?;
        Ok(lease)
    }

    async fn release(&self, held: Lease) -> anyhow::Result<()> {
        held.release().await?;
        Ok(())
    }
}

/// The crate rslock, which knows no tokens, with the settings that it comes with.
#[derive(Clone, Debug)]
pub(super) struct RsLock(rslock::LockManager);

impl RsLock {
    pub(super) fn open(url: &str) -> anyhow::Result<Self> {
        Ok(Self(rslock::LockManager::from_clients(vec![redis::Client::open(url)?])))
    }
}

impl Peer for RsLock {
    type Held = rslock::LockGuard;

    const ASKS_BY: &'static str = "set";

    fn asks_until_waiting(&self, waiters: usize, _: usize) -> usize {
        waiters
    }

    async fn acquire(&self, name: &ResourceName) -> anyhow::Result<rslock::LockGuard> {
        Ok(self.0.acquire(name.as_str(), TTL).await?)
    }

    async fn release(&self, held: rslock::LockGuard) -> anyhow::Result<()> {
        held.release().await;
        Ok(())
    }
}

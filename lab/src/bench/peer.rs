//! Locks of any kind, as the benches use them.

use std::time::{Duration, Instant};

use fence::ResourceName;
use lock_client::{Lease, Locks, Order, Terms, Ttl};

use super::samples::Samples;

/// How long every lock is granted for: longer than anybody here keeps it, so that nothing is renewed.
pub(super) const TTL: Duration = Duration::from_secs(30);

/// Locks of one kind. A clone is the same client, with the same connections.
pub(super) trait Peer: Clone + Send + Sync + 'static {
    type Held: Send;

    /// Waits for the lock, and takes it, with its token if there is one.
    fn acquire(
        &self,
        name: &ResourceName,
    ) -> impl Future<Output = anyhow::Result<Self::Held>> + Send;

    fn release(&self, held: Self::Held) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Waits until nothing goes on in the background.
    fn settled(&self) -> impl Future<Output = ()> + Send;
}

/// Acquires and releases a lock of each name, one after the other.
pub(super) async fn cycles<P: Peer>(peer: &P, names: &[ResourceName]) -> anyhow::Result<Samples> {
    let mut samples = Samples::default();
    for name in names {
        let begun = Instant::now();
        let held = peer.acquire(name).await?;
        peer.release(held).await?;
        samples.add(begun.elapsed());
    }
    Ok(samples)
}

/// Our own locks.
#[derive(Clone, Debug)]
pub(super) struct Fenced {
    locks: Locks,
    terms: Terms,
    order: Order,
}

impl Fenced {
    /// On one Redis.
    pub(super) fn open(url: &str) -> anyhow::Result<Self> {
        Self::of(Locks::new(lock_client::redis::Redis::open(url)?))
    }

    /// On a majority of several.
    pub(super) fn open_redlock(urls: &[String]) -> anyhow::Result<Self> {
        Self::of(Locks::from(lock_client::redlock::Redlock::open(urls)?))
    }

    fn of(locks: Locks) -> anyhow::Result<Self> {
        Ok(Self { locks, terms: Terms::new(Ttl::new(TTL)?), order: Order::Unordered })
    }

    /// The same client, whose waiters stand in a queue.
    pub(super) fn fair(&self) -> Self {
        Self { locks: self.locks.clone(), terms: self.terms.fair(), order: Order::Fair }
    }

    pub(super) fn order(&self) -> Order {
        self.order
    }
}

impl Peer for Fenced {
    type Held = Lease;

    async fn acquire(&self, name: &ResourceName) -> anyhow::Result<Lease> {
        let lease = self.locks.acquire(name, self.terms).await?;
        lease.token()?;
        Ok(lease)
    }

    async fn release(&self, held: Lease) -> anyhow::Result<()> {
        held.release().await?;
        Ok(())
    }

    async fn settled(&self) {
        self.locks.wait_for_background().await;
    }
}

/// The crate rslock, which knows no tokens, with the settings that it comes with.
#[derive(Clone, Debug)]
pub(super) struct RsLock(rslock::LockManager);

impl RsLock {
    /// On one Redis, or on a majority of several.
    pub(super) fn open(urls: &[String]) -> anyhow::Result<Self> {
        let clients = urls.iter().map(|url| redis::Client::open(url.as_str()));
        Ok(Self(rslock::LockManager::from_clients(clients.collect::<Result<_, _>>()?)))
    }
}

impl Peer for RsLock {
    type Held = rslock::LockGuard;

    async fn acquire(&self, name: &ResourceName) -> anyhow::Result<rslock::LockGuard> {
        Ok(self.0.acquire(name.as_str(), TTL).await?)
    }

    async fn release(&self, held: rslock::LockGuard) -> anyhow::Result<()> {
        held.release().await;
        Ok(())
    }

    /// It waits for all nodes, and leaves nothing to the background.
    async fn settled(&self) {}
}

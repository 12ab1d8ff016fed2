//! The lock clients that the benches compare: ours, and rslock.

use std::time::{Duration, Instant};

use fence::ResourceName;
use lock_client::{Lease, Locks, Terms, Ttl, backend::Backend};

/// The ttl of every lock: longer than anybody here holds one, so that no lease is renewed.
pub(super) const TTL: Duration = Duration::from_secs(30);

/// A lock client. A clone is the same client, with the same connections.
pub(super) trait Peer: Clone + Send + Sync + 'static {
    type Held: Send;

    /// Waits for the lock and acquires it, with its token if there is one.
    fn acquire(
        &self,
        name: &ResourceName,
    ) -> impl Future<Output = anyhow::Result<Self::Held>> + Send;

    fn release(&self, held: Self::Held) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Waits until the client has no requests left in the background.
    fn finish_background_work(&self) -> impl Future<Output = ()> + Send;
}

/// Acquires and releases a lock of each name, one after the other, and returns how long each took.
pub(super) async fn cycles<P: Peer>(
    peer: &P,
    names: &[ResourceName],
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for name in names {
        let begun = Instant::now();
        let held = peer.acquire(name).await?;
        peer.release(held).await?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// Parses a name that a bench itself has made.
pub(super) fn name(name: &str) -> ResourceName {
    name.parse().expect("the benches use valid names")
}

/// A name that no lock has had yet.
pub(super) fn new_name() -> ResourceName {
    name(&format!("new/{}", rand::random::<u64>()))
}

/// Our own locks, in any lock service.
#[derive(Clone, Debug)]
pub(super) struct Fenced {
    locks: Locks,
    terms: Terms,
}

impl Fenced {
    pub(super) fn over(backend: impl Backend) -> anyhow::Result<Self> {
        Ok(Self { locks: Locks::new(backend), terms: Terms::new(Ttl::new(TTL)?) })
    }

    /// Returns the same client, but its waiters queue in the lock service.
    pub(super) fn fair(&self) -> Self {
        Self { locks: self.locks.clone(), terms: self.terms.fair() }
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

    async fn finish_background_work(&self) {
        self.locks.wait_for_background().await;
    }
}

/// The crate rslock, which has no tokens, with its default settings.
#[derive(Clone, Debug)]
pub(super) struct RsLock(rslock::LockManager);

impl RsLock {
    /// Uses one Redis, or a majority of several.
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

    /// Returns at once: rslock waits for all nodes in the foreground.
    async fn finish_background_work(&self) {}
}

//! Storage servers under the hammer, which share a database.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use fence::{Fence, Holder, ResourceName, Token};
use lock_client::storage::{Answer, Storage, StorageError, Value};
use tokio::time::sleep;

use super::{
    database::{Attempt, Connection, Database, Offer, Seen, Variant, Written},
    history::Order,
};

/// How long a client pauses after a request that was not decided.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a server may be unavailable at the end, for example because its database fails over.
const PATIENCE: Duration = Duration::from_secs(120);

/// Clients are spread over the servers. Values are increments.
pub(super) struct StorageServers {
    servers: Vec<Storage>,
    clients: AtomicUsize,
    /// The highest token that was offered.
    highest_token: Arc<AtomicU64>,
}

impl StorageServers {
    /// The URLs are separated by commas.
    pub(super) fn new(urls: &str, variant: Option<Variant>) -> anyhow::Result<Self> {
        ensure!(
            variant.is_none(),
            "a storage server has no variants: start one with --enforcement off instead"
        );
        let servers = urls.split(',').map(Storage::new).collect::<Result<_, _>>()?;
        Ok(Self { servers, clients: AtomicUsize::new(0), highest_token: Arc::default() })
    }
}

#[async_trait]
impl Database for StorageServers {
    fn isolation_levels(&self) -> &'static [&'static str] {
        &["a request at a time"]
    }

    /// A server reports the version that a write made.
    fn order(&self) -> Order {
        Order::Versions
    }

    async fn prepare(&self, _resources: &[ResourceName]) -> anyhow::Result<()> {
        Ok(())
    }

    async fn connect(&self, _isolation: &str) -> anyhow::Result<Box<dyn Connection>> {
        let client = self.clients.fetch_add(1, Ordering::Relaxed);
        let storage = self.servers[client % self.servers.len()].clone();
        Ok(Box::new(Client { storage, highest_token: self.highest_token.clone() }))
    }

    async fn increments(&self, resource: &ResourceName) -> anyhow::Result<u64> {
        let begun = Instant::now();
        loop {
            match self.servers[0].read(resource).await {
                Err(StorageError::Unavailable(_)) if begun.elapsed() < PATIENCE => {
                    sleep(PAUSE).await;
                }
                value => return Ok(seen(value?.as_ref())?.increments),
            }
        }
    }

    async fn clear(&self, resources: &[ResourceName]) -> anyhow::Result<()> {
        let token = Token::new(self.highest_token.load(Ordering::Relaxed) + 1)?;
        let fence = Fence { token, holder: Holder::random() };
        for resource in resources {
            let deleted = self.servers[0].delete(resource, &fence).await?;
            ensure!(deleted == Answer::Accepted(()), "can't delete {resource}");
        }
        Ok(())
    }
}

struct Client {
    storage: Storage,
    highest_token: Arc<AtomicU64>,
}

#[async_trait]
impl Connection for Client {
    async fn read(&mut self, Offer { resource, fence }: &Offer) -> anyhow::Result<Attempt<Seen>> {
        self.highest_token.fetch_max(fence.token.as_u64(), Ordering::Relaxed);
        Ok(match attempt(self.storage.fenced_read(resource, fence).await).await? {
            Attempt::Committed(value) => Attempt::Committed(seen(value.as_ref())?),
            Attempt::Rejected => Attempt::Rejected,
            // A claim writes nothing that counts.
            Attempt::TryAgain | Attempt::Unknown => Attempt::TryAgain,
            Attempt::Lost => Attempt::Lost,
        })
    }

    async fn write(
        &mut self,
        Offer { resource, fence }: &Offer,
        increments: u64,
    ) -> anyhow::Result<Attempt<Written>> {
        let value = increments.to_string();
        let written = self.storage.write(resource, fence, "text/plain", value).await;
        Ok(attempt(written).await?.map(|version| Written { state: version, replaced: 0 }))
    }
}

async fn attempt<T>(answer: Result<Answer<T>, StorageError>) -> anyhow::Result<Attempt<T>> {
    let undecided = match answer {
        Ok(Answer::Accepted(accepted)) => return Ok(Attempt::Committed(accepted)),
        Ok(Answer::Rejected(_)) => return Ok(Attempt::Rejected),
        Err(StorageError::Unavailable(_)) => Attempt::TryAgain,
        Err(StorageError::Unknown(_)) => Attempt::Unknown,
        Err(error) => return Err(error.into()),
    };
    sleep(PAUSE).await;
    Ok(undecided)
}

fn seen(value: Option<&Value>) -> anyhow::Result<Seen> {
    let Some(Value { bytes, version, .. }) = value else {
        return Ok(Seen { state: 0, increments: 0 });
    };
    let increments = str::from_utf8(bytes)?.parse().context("a value is not a number")?;
    Ok(Seen { state: *version, increments })
}

//! Clients that write until the power fails, and remember what was acknowledged.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use fence::{Fence, Holder, ResourceName, Token};
use lock_client::storage::{Answer, Storage, StorageError};
use serde::Serialize;
use testbed::wait::until;
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(30);
/// The token before the first one.
const COUNTER: u64 = 33;

/// What became of the acknowledged writes of all losses.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Counts {
    pub(super) acknowledged: usize,
    pub(super) lost: usize,
    /// How often a resource accepted a token below an acknowledged one.
    pub(super) lowered_fences: usize,
}

/// Clients that each write a resource of their own, again and again with growing tokens.
pub(super) struct Load {
    clients: Vec<Client>,
    counts: Counts,
}

struct Client {
    resource: ResourceName,
    /// The last token that was tried. Its number is also the value.
    token: u64,
    /// What the last acknowledged write has offered.
    last: Option<Fence>,
    /// The tokens of the writes that were acknowledged since the last power loss.
    acknowledged: Vec<u64>,
}

/// A load that is writing.
pub(super) struct Writing {
    clients: JoinSet<anyhow::Result<Client>>,
    acknowledged: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Load {
    pub(super) fn new(clients: usize) -> anyhow::Result<Self> {
        let clients = (0..clients).map(|number| {
            let resource = format!("client/{number}").parse()?;
            Ok(Client { resource, token: COUNTER, last: None, acknowledged: Vec::new() })
        });
        Ok(Self { clients: clients.collect::<anyhow::Result<_>>()?, counts: Counts::default() })
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn start(&mut self, url: &str) -> anyhow::Result<Writing> {
        let mut writing =
            Writing { clients: JoinSet::new(), acknowledged: Arc::default(), stop: Arc::default() };
        for mut client in self.clients.drain(..) {
            let storage = Storage::new(url)?;
            let (acknowledged, stop) = (writing.acknowledged.clone(), writing.stop.clone());
            writing.clients.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    if client.write(&storage).await? {
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(client)
            });
        }
        Ok(writing)
    }

    /// Claims each resource as its last write did. Only what a server answers to this counts as
    /// acknowledged. The server that took the writes has never synced them.
    pub(super) async fn repeat_claims(&mut self, url: &str) -> anyhow::Result<()> {
        let storage = Storage::new(url)?;
        for client in &mut self.clients {
            client.acknowledged.clear();
            let Some(last) = &client.last else { continue };
            if let Answer::Accepted(_) = storage.claim(&client.resource, last).await? {
                client.acknowledged.push(last.token.as_u64());
            }
        }
        Ok(())
    }

    /// Counts the writes that are lost, and the fences that went down.
    pub(super) async fn check(&mut self, url: &str) -> anyhow::Result<()> {
        let storage = Storage::new(url)?;
        for client in &mut self.clients {
            let acknowledged = std::mem::take(&mut client.acknowledged);
            let Some(&last) = acknowledged.last() else { continue };
            let value = storage.read(&client.resource).await?;
            let found = match &value {
                Some(value) => std::str::from_utf8(&value.bytes)?.parse()?,
                None => 0,
            };
            self.counts.acknowledged += acknowledged.len();
            self.counts.lost += acknowledged.iter().filter(|&&token| token > found).count();
            let older = storage.claim(&client.resource, &new_fence(last - 1)?).await?;
            self.counts.lowered_fences += usize::from(matches!(older, Answer::Accepted(_)));
        }
        Ok(())
    }
}

impl Writing {
    /// Waits until so many more writes were acknowledged.
    pub(super) async fn acknowledges(&self, more: u64) -> anyhow::Result<()> {
        let enough = self.acknowledged.load(Ordering::Relaxed) + more;
        until(PATIENCE, || Ok(self.acknowledged.load(Ordering::Relaxed) >= enough))
            .await
            .context("too few writes were acknowledged")
    }

    /// Ends the load, after the server.
    pub(super) async fn stop(mut self, load: &mut Load) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(client) = self.clients.join_next().await {
            load.clients.push(client??);
        }
        Ok(())
    }
}

impl Client {
    /// Writes with the next token, and returns whether that was acknowledged.
    async fn write(&mut self, storage: &Storage) -> anyhow::Result<bool> {
        self.token += 1;
        let (fence, value) = (new_fence(self.token)?, self.token.to_string());
        match storage.write(&self.resource, &fence, "text/plain", value).await {
            Ok(Answer::Accepted(_)) => {
                self.acknowledged.push(self.token);
                self.last = Some(fence);
                Ok(true)
            }
            Ok(Answer::Rejected(rejection)) => bail!("a new token was rejected: {rejection:?}"),
            Err(StorageError::Unavailable(_) | StorageError::Unknown(_)) => {
                tokio::task::yield_now().await;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn new_fence(token: u64) -> anyhow::Result<Fence> {
    Ok(Fence { token: Token::new(token)?, holder: Holder::random() })
}

//! A Redlock as it is often made: without a token, so that the storage has nothing to check.
//!
//! One is the crate rslock, unchanged. The others are nobody's code: Redlock as it is described,
//! with one of its rules left out.

use std::time::{Duration, Instant};

use anyhow::Context;
use fence::{Holder, ResourceName};
use futures_util::future::join_all;
use redis::{
    AsyncCommands, AsyncConnectionConfig, Client, ExistenceCheck, Script, SetExpiry, SetOptions,
    aio::MultiplexedConnection,
};
use rslock::LockManager;

use super::{
    command::{Terms, millis},
    key_lock::{acquired, key},
    setup::RedlockKind,
};
use crate::record::EventKind;

/// How long a node has to answer. In one scenario, replies are lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) struct NaiveRedlock {
    nodes: Vec<String>,
    key: String,
    kind: RedlockKind,
    held: Option<Held>,
}

/// A lock that was granted.
struct Held {
    until: Instant,
    grant: Grant,
}

/// How to release a lock that was granted.
enum Grant {
    Rslock(rslock::Lock),
    Own { value: String, nodes: Vec<MultiplexedConnection> },
}

impl NaiveRedlock {
    pub(super) fn new(nodes: &[String], lock: &ResourceName, kind: RedlockKind) -> Self {
        Self { nodes: nodes.to_vec(), key: key(lock), kind, held: None }
    }

    /// Takes the lock if it is free.
    pub(super) async fn acquire(&mut self, Terms { ttl_ms, .. }: Terms) -> EventKind {
        let until = Instant::now() + Duration::from_millis(ttl_ms);
        let grant = match self.kind {
            RedlockKind::Rslock => self.lock_by_rslock(ttl_ms).await,
            RedlockKind::MajorityOfAnswers | RedlockKind::ReleaseWhereGranted => {
                self.lock(ttl_ms).await
            }
        };
        self.held = grant.map(|grant| Held { until, grant });
        if self.held.is_some() { acquired(ttl_ms) } else { EventKind::NoMajority }
    }

    /// How long the client may rely on the lock.
    pub(super) fn remaining_ms(&self) -> anyhow::Result<u64> {
        let held = self.held.as_ref().context("there is no lock")?;
        Ok(millis(held.until.saturating_duration_since(Instant::now())))
    }

    pub(super) async fn release(&mut self) -> anyhow::Result<EventKind> {
        match self.held.take().context("there is no lock")?.grant {
            Grant::Rslock(lock) => lock.release().await,
            Grant::Own { value, nodes } => self.unlock(&value, nodes).await,
        }
        Ok(EventKind::Released)
    }

    async fn lock_by_rslock(&self, ttl_ms: u64) -> Option<Grant> {
        let manager = LockManager::new(self.nodes.clone());
        let locked = manager.lock(&*self.key, Duration::from_millis(ttl_ms)).await;
        locked.ok().map(Grant::Rslock)
    }

    async fn lock(&self, ttl_ms: u64) -> Option<Grant> {
        let value = Holder::random().as_str().to_owned();
        let asked = self.nodes.iter().map(|url| self.lock_node(url, &value, ttl_ms));
        let answers = join_all(asked).await;
        let answered = answers.iter().filter(|answer| answer.is_ok()).count();
        let granted: Vec<_> = answers.into_iter().filter_map(Result::ok).flatten().collect();
        let counted = match self.kind {
            RedlockKind::MajorityOfAnswers => answered,
            _ => self.nodes.len(),
        };
        if granted.len() > counted / 2 {
            return Some(Grant::Own { value, nodes: granted });
        }
        self.unlock(&value, granted).await;
        None
    }

    /// Takes the lock on one node. Returns the connection if the node granted it.
    async fn lock_node(
        &self,
        url: &str,
        value: &str,
        ttl_ms: u64,
    ) -> anyhow::Result<Option<MultiplexedConnection>> {
        let limits = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT));
        let client = Client::open(url)?;
        let mut node = client.get_multiplexed_async_connection_with_config(&limits).await?;
        let if_free = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::PX(ttl_ms));
        let set: Option<String> = node.set_options(&self.key, value, if_free).await?;
        Ok(set.map(|_| node))
    }

    async fn unlock(&self, value: &str, nodes: Vec<MultiplexedConnection>) {
        let compare_and_delete = Script::new(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end",
        );
        for mut node in nodes {
            let mut call = compare_and_delete.key(&self.key);
            // On a node that doesn't answer, the lock expires.
            let _: Option<()> = call.arg(value).invoke_async(&mut node).await.ok();
        }
    }
}

//! A lock as it is found everywhere: a key in Redis that is set if nobody has set it. It has no
//! token, and its value is the name of its owner.

use std::time::{Duration, Instant};

use anyhow::Context;
use fence::ResourceName;
use redis::{AsyncCommands, ExistenceCheck, SetExpiry, SetOptions, aio::MultiplexedConnection};
use tokio::time::sleep;

use super::{command::Terms, report::Reports};
use crate::record::EventKind;

/// The time between two tries of a client that waits.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(super) struct KeyLock {
    redis: MultiplexedConnection,
    key: String,
    owner: String,
}

impl KeyLock {
    pub(super) async fn connect(
        url: &str,
        lock: &ResourceName,
        owner: &str,
    ) -> anyhow::Result<Self> {
        let redis = testbed::redis::connect(url).await?;
        Ok(Self { redis, key: key(lock), owner: owner.to_owned() })
    }

    /// Sets the key with its expiry, in one command (SET with NX and PX).
    pub(super) async fn acquire(
        &mut self,
        terms: Terms,
        reports: &mut Reports,
    ) -> anyhow::Result<()> {
        let if_free = if_free().with_expiration(SetExpiry::PX(terms.ttl_ms));
        if self.set(if_free, terms, reports).await? {
            reports.add(acquired(terms.ttl_ms));
        }
        Ok(())
    }

    /// Sets the key without an expiry (SETNX).
    pub(super) async fn set_without_expiry(
        &mut self,
        terms: Terms,
        reports: &mut Reports,
    ) -> anyhow::Result<()> {
        if self.set(if_free(), terms, reports).await? {
            reports.add(EventKind::SetWithoutExpiry);
        }
        Ok(())
    }

    /// Sets the expiry of the key (PEXPIRE).
    pub(super) async fn set_expiry(&mut self, ttl_ms: u64) -> anyhow::Result<EventKind> {
        let () = self.redis.pexpire(&self.key, ttl_ms.try_into()?).await?;
        Ok(acquired(ttl_ms))
    }

    /// Looks who holds the lock (GET).
    pub(super) async fn compare(&mut self) -> anyhow::Result<EventKind> {
        let owner: Option<String> = self.redis.get(&self.key).await?;
        let own = owner.filter(|owner| *owner == self.owner);
        Ok(own.map_or(EventKind::LeaseLost, |owner| EventKind::Compared { owner }))
    }

    /// Deletes the key, also if another client has set it (DEL).
    pub(super) async fn delete(&mut self) -> anyhow::Result<EventKind> {
        Ok(EventKind::Deleted { keys: self.redis.del(&self.key).await? })
    }

    /// Sets the key as soon as it is free. Returns whether that was in time.
    async fn set(
        &mut self,
        options: SetOptions,
        terms: Terms,
        reports: &mut Reports,
    ) -> anyhow::Result<bool> {
        let started = Instant::now();
        let mut waiting = false;
        loop {
            let set: Option<String> = self
                .redis
                .set_options(&self.key, &self.owner, options.clone())
                .await
                .context("can't set the lock")?;
            if set.is_some() {
                return Ok(true);
            }
            if !waiting && terms.wait_ms > 0 {
                reports.add(EventKind::Busy);
                waiting = true;
            }
            if started.elapsed() >= Duration::from_millis(terms.wait_ms) {
                reports.add(EventKind::GaveUp { waited_ms: terms.wait_ms });
                return Ok(false);
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// The key of a naive lock.
pub(crate) fn key(lock: &ResourceName) -> String {
    format!("lock:{lock}")
}

fn if_free() -> SetOptions {
    SetOptions::default().conditional_set(ExistenceCheck::NX)
}

/// The event of a lock that has no token.
pub(super) fn acquired(ttl_ms: u64) -> EventKind {
    let ttl_ms = Some(ttl_ms);
    EventKind::Acquired { ttl_ms, remaining_ms: None, resource: None, holder: None, beside: None }
}

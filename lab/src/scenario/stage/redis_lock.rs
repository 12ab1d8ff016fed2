//! A lock in a private Redis.

use std::time::Duration;

use anyhow::Context;
use fence::{ResourceName, Token};
use testbed::{Redis, wait::until_async};
use tokio::time::timeout;

use super::scene::Scene;
use crate::{
    client::{key_lock, setup::LockSetup},
    record::{Actor, EventKind, Recorder},
};

/// The ttl of a lease that will expire.
pub(crate) const SHORT_TTL: Duration = Duration::from_secs(1);
/// The ttl of a lease that will last.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(20);
/// How long to wait until a lease has expired.
pub(super) const EXPIRES_WITHIN: Duration = Duration::from_secs(20);

/// The token before the first one, unless a scenario says otherwise: the next tokens are 33 and 34.
pub(crate) const LAST_TOKEN: u64 = 32;

/// Where a lock's counter starts.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    /// At this last token.
    At(u64),
    /// At the clock of the lock client, which is what it does if the counter is missing.
    AtTheClock,
}

pub(crate) struct RedisLock {
    redis: Redis,
    resource: ResourceName,
    /// The key that exists as long as somebody holds the lock.
    key: String,
    setup: LockSetup,
    recorder: Recorder,
}

impl RedisLock {
    /// Starts a Redis with a lock of the lock client. The next tokens are 33 and 34.
    pub(crate) async fn start(resource: &str, scene: &Scene) -> anyhow::Result<Self> {
        Self::start_counting(resource, Counter::At(LAST_TOKEN), scene).await
    }

    pub(crate) async fn start_counting(
        resource: &str,
        counter: Counter,
        scene: &Scene,
    ) -> anyhow::Result<Self> {
        Self::start_on(Redis::start().await?, resource, counter, scene).await
    }

    /// Starts a lock of the lock client on this Redis.
    pub(crate) async fn start_on(
        redis: Redis,
        resource: &str,
        counter: Counter,
        scene: &Scene,
    ) -> anyhow::Result<Self> {
        let resource = resource.parse()?;
        let setup = LockSetup::Redis(redis.url());
        let recorder = scene.recorder.clone();
        let lock = Self { key: lock_key(&resource), redis, resource, setup, recorder };
        lock.start_counter(counter).await?;
        Ok(lock)
    }

    /// Starts a Redis with a naive lock: a key that is set if nobody has set it.
    pub(crate) async fn start_naive(resource: &str, scene: &Scene) -> anyhow::Result<Self> {
        let (redis, resource) = (Redis::start().await?, resource.parse()?);
        let setup = LockSetup::Key(redis.url());
        let recorder = scene.recorder.clone();
        Ok(Self { key: key_lock::key(&resource), redis, resource, setup, recorder })
    }

    /// What a client needs to take this lock.
    pub(crate) fn setup(&self) -> LockSetup {
        self.setup.clone()
    }

    pub(crate) fn redis(&self) -> &Redis {
        &self.redis
    }

    /// The Redis, to kill or restart it.
    pub(crate) fn redis_mut(&mut self) -> &mut Redis {
        &mut self.redis
    }

    /// Lets the counter start, before it is first used or after it was lost.
    pub(crate) async fn start_counter(&self, counter: Counter) -> anyhow::Result<()> {
        match counter {
            Counter::At(last) => {
                self.redis.set(&counter_key(&self.resource), &last.to_string()).await?;
                self.record(Token::new(last).ok(), EventKind::CounterPreset);
            }
            Counter::AtTheClock => self.record(None, EventKind::CounterFromTheClock),
        }
        Ok(())
    }

    /// Kills Redis and starts it again. It has kept nothing.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        self.redis.restart().await?;
        let keys = self.redis.command(&["DBSIZE"]).await?;
        self.record(None, EventKind::Restarted { keys });
        Ok(())
    }

    /// Waits until the lease of a client has expired in Redis.
    pub(crate) async fn expires(
        &self,
        whose: Actor,
        token: impl Into<Option<Token>>,
    ) -> anyhow::Result<()> {
        let expired = async || Ok(!self.redis.command::<bool>(&["EXISTS", &self.key]).await?);
        until_async(EXPIRES_WITHIN, expired).await.context("the lease did not expire")?;
        self.record(token, EventKind::LeaseExpired { whose });
        Ok(())
    }

    /// Waits this long for the lease of a client to expire in Redis, also if another client
    /// acquires the lock then. Returns whether the lease has expired.
    pub(crate) async fn expires_within(
        &self,
        time: Duration,
        whose: Actor,
    ) -> anyhow::Result<bool> {
        let held = self.value().await?;
        let expired = until_async(EXPIRES_WITHIN, async || Ok(self.value().await? != held));
        match timeout(time, expired).await {
            Ok(expired) => expired?,
            Err(_) => return Ok(false),
        }
        self.record(None, EventKind::LeaseExpired { whose });
        Ok(true)
    }

    /// Records when a lock expires that a dead client has left. Returns whether it ever does.
    pub(crate) async fn check_expiry(&self) -> anyhow::Result<bool> {
        let remaining_ms = match self.redis.command::<i64>(&["PTTL", &self.key]).await? {
            // Redis's answer for a key without an expiry.
            -1 => None,
            remaining => Some(remaining.try_into().unwrap_or(0)),
        };
        self.record(None, EventKind::LockRemains { remaining_ms });
        Ok(remaining_ms.is_some())
    }

    /// Records whether a client still has its lock, or somebody has deleted it.
    pub(crate) async fn check_kept_by(&self, whose: Actor) -> anyhow::Result<()> {
        let kept = self.value().await?.is_some();
        let event =
            if kept { EventKind::LockKept { whose } } else { EventKind::LockDeleted { whose } };
        self.record(None, event);
        Ok(())
    }

    /// The value of the lock's key: it names the holder.
    async fn value(&self) -> anyhow::Result<Option<String>> {
        self.redis.command(&["GET", &self.key]).await
    }

    fn record(&self, token: impl Into<Option<Token>>, kind: EventKind) {
        self.recorder.record(Actor::Redis, token, kind);
    }
}

/// Where the lock client keeps a lock.
pub(super) fn lock_key(resource: &ResourceName) -> String {
    format!("fenced:{{{resource}}}:lock")
}

/// Where the lock client keeps the counter of a lock.
pub(super) fn counter_key(resource: &ResourceName) -> String {
    format!("fenced:{{{resource}}}:token")
}

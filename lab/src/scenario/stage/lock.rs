//! The lock of a scenario: a private Redis, whose counter is preset so that the tokens are 33 and 34.

use std::time::Duration;

use anyhow::Context;
use fence::{ResourceName, Token};
use serde_json::{Map, Value};

use crate::record::{Actor, Recorder};
use testbed::{Redis, wait::until_async};

/// For how long client 1 gets the lock, which is to run out.
pub(crate) const TTL: Duration = Duration::from_secs(1);
/// For how long client 2 gets it, which is to last.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(20);
/// How long to wait until a lease has run out.
pub(crate) const RUNS_OUT_WITHIN: Duration = Duration::from_secs(10);

/// The last token, where nothing else is said: the next ones are 33 and 34.
pub(crate) const LAST_TOKEN: u64 = 32;

/// Where a lock's counter begins.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    /// At this last token.
    From(u64),
    /// At the lock client's clock, which is what it does with a counter that is missing.
    FromTheClock,
}

pub(crate) struct Lock {
    redis: Redis,
    resource: ResourceName,
}

impl Lock {
    /// A lock whose next tokens are 33 and 34.
    pub(crate) async fn start(resource: &str, recorder: &mut Recorder) -> anyhow::Result<Self> {
        Self::start_counting(resource, Counter::From(LAST_TOKEN), recorder).await
    }

    pub(crate) async fn start_counting(
        resource: &str,
        counter: Counter,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Self> {
        let lock = Self { redis: Redis::start().await?, resource: resource.parse()? };
        lock.begin(counter, recorder).await?;
        Ok(lock)
    }

    /// Has the counter begin, before it is first used.
    pub(crate) async fn begin(
        &self,
        counter: Counter,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        match counter {
            Counter::FromTheClock => recorder.note(Actor::Redis, "counter-from-the-clock", None),
            Counter::From(last) => {
                preset(&self.redis, &self.resource, last, recorder).await?;
            }
        }
        Ok(())
    }

    /// Kills Redis, and starts it again where it was. It has kept nothing.
    pub(crate) async fn restart(&mut self, recorder: &mut Recorder) -> anyhow::Result<()> {
        self.redis.restart().await?;
        let keys: u64 = self.redis.command(&["DBSIZE"]).await?;
        let keys = Map::from_iter([("keys".to_owned(), keys.into())]);
        recorder.note_with(Actor::Redis, "restarted", None, keys);
        Ok(())
    }

    pub(crate) fn redis(&self) -> &Redis {
        &self.redis
    }

    pub(crate) fn url(&self) -> String {
        self.redis.url()
    }

    /// Waits until Redis has let the lock go, which was this client's.
    pub(crate) async fn runs_out(
        &self,
        whose: Actor,
        token: Option<Token>,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        runs_out(&self.redis, &key(&self.resource), whose, token, recorder).await
    }
}

/// Where the lock client keeps a lock.
pub(crate) fn key(resource: &ResourceName) -> String {
    format!("fenced:{{{resource}}}:lock")
}

/// Sets a lock's counter to this last token.
pub(crate) async fn preset(
    redis: &Redis,
    resource: &ResourceName,
    last: u64,
    recorder: &mut Recorder,
) -> anyhow::Result<()> {
    redis.set(&format!("fenced:{{{resource}}}:token"), &last.to_string()).await?;
    recorder.note(Actor::Redis, "counter-preset", Token::new(last).ok());
    Ok(())
}

/// Waits until Redis has let a lock go that it keeps under this key, and that was this client's.
pub(crate) async fn runs_out(
    redis: &Redis,
    key: &str,
    whose: Actor,
    token: Option<Token>,
    recorder: &mut Recorder,
) -> anyhow::Result<()> {
    let gone = async || Ok(!redis.command::<bool>(&["EXISTS", key]).await?);
    until_async(RUNS_OUT_WITHIN, gone).await.context("the lease did not end")?;
    recorder.note_with(Actor::Redis, "lease-expired", token, of(whose));
    Ok(())
}

/// The detail of an event that says to whose lock it was done.
pub(crate) fn of(whose: Actor) -> Map<String, Value> {
    Map::from_iter([("whose".to_owned(), whose.title().into())])
}

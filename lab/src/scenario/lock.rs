//! The lock of a scenario: a private Redis, whose counter is preset so that the tokens are 33 and 34.

use std::time::Duration;

use anyhow::Context;
use fence::{ResourceName, Token};
use lock_client::{Locks, backend};
use serde_json::Map;
use tokio::time::{sleep, timeout};

use crate::{
    record::{Actor, Recorder},
    servers::Redis,
};

/// For how long client 1 gets the lock, which is to run out.
pub(super) const TTL: Duration = Duration::from_secs(2);
/// For how long client 2 gets it, which is to last.
pub(super) const LONG_TTL: Duration = Duration::from_secs(20);
/// How long to wait for that.
const RUNS_OUT_WITHIN: Duration = Duration::from_secs(10);

/// Where a lock's counter begins.
#[derive(Clone, Copy)]
pub(super) enum Counter {
    /// At this last token.
    From(u64),
    /// At the lock client's clock, which is what it does with a counter that is missing.
    FromTheClock,
}

pub(super) struct Lock {
    redis: Redis,
    resource: ResourceName,
}

impl Lock {
    /// A lock whose next tokens are 33 and 34.
    pub(super) async fn start(resource: &str, recorder: &mut Recorder) -> anyhow::Result<Self> {
        Self::start_counting(resource, Counter::From(32), recorder).await
    }

    pub(super) async fn start_counting(
        resource: &str,
        counter: Counter,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Self> {
        let lock = Self { redis: Redis::start().await?, resource: resource.parse()? };
        lock.begin(counter, recorder).await?;
        Ok(lock)
    }

    /// Has the counter begin, before it is first used.
    pub(super) async fn begin(
        &self,
        counter: Counter,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        match counter {
            Counter::FromTheClock => recorder.note(Actor::Redis, "counter-from-the-clock", None),
            Counter::From(last) => {
                let key = format!("fenced:{{{}}}:token", self.resource);
                self.redis.set(&key, &last.to_string()).await?;
                recorder.note(Actor::Redis, "counter-preset", Token::new(last).ok());
            }
        }
        Ok(())
    }

    /// Kills Redis, and starts it again where it was. It has kept nothing.
    pub(super) async fn restart(&mut self, recorder: &mut Recorder) -> anyhow::Result<()> {
        self.redis.restart().await?;
        let keys: u64 = self.redis.command(&["DBSIZE"]).await?;
        let keys = Map::from_iter([("keys".to_owned(), keys.into())]);
        recorder.note_with(Actor::Redis, "restarted", None, keys);
        Ok(())
    }

    pub(super) fn redis(&self) -> &Redis {
        &self.redis
    }

    pub(super) fn url(&self) -> String {
        self.redis.url()
    }

    /// Waits until Redis has let the lock go, which was this client's.
    pub(super) async fn runs_out(
        &self,
        whose: Actor,
        token: Option<Token>,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        let locks = Locks::new(backend::Redis::open(&self.url())?);
        let gone = async {
            while locks.status(&self.resource).await?.held.is_some() {
                sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        };
        timeout(RUNS_OUT_WITHIN, gone).await.context("the lease did not end")??;
        let whose = Map::from_iter([("whose".to_owned(), whose.title().into())]);
        recorder.note_with(Actor::Redis, "lease-expired", token, whose);
        Ok(())
    }
}

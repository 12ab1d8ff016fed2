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

pub(super) struct Lock {
    redis: Redis,
    resource: ResourceName,
}

impl Lock {
    pub(super) async fn start(resource: &str, recorder: &mut Recorder) -> anyhow::Result<Self> {
        let redis = Redis::start().await?;
        redis.set(&format!("fenced:{{{resource}}}:token"), "32").await?;
        recorder.note(Actor::Redis, "counter-preset", Token::new(32).ok());
        Ok(Self { redis, resource: resource.parse()? })
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

//! A private Redis with one lock, and workers that take it in one of many ways.

use std::{collections::HashSet, time::Duration};

use anyhow::Context;
use fence::ResourceName;
use redis::{AsyncCommands, aio::MultiplexedConnection};
use serde_json::Map;
use tokio::time::{sleep, timeout};

use super::{client::Client, work::Work};
use crate::{
    record::{Actor, Event, Recorder},
    servers::Redis,
    worker::{self, Way},
};

pub(super) const LOCK: &str = "seat-12";
const RUNS_OUT_WITHIN: Duration = Duration::from_secs(10);

pub(super) struct Workplace {
    redis: Redis,
    connection: MultiplexedConnection,
    way: Way,
    /// Where the lock is kept.
    key: String,
}

impl Workplace {
    pub(super) async fn start(way: Way) -> anyhow::Result<Self> {
        let redis = Redis::start().await?;
        let client = redis::Client::open(redis.url())?;
        let connection = client.get_multiplexed_async_connection().await?;
        let lock: ResourceName = LOCK.parse()?;
        let key = match way {
            Way::Scripts | Way::ScriptsAndRenewal => format!("fenced:{{{lock}}}:lock"),
            _ => worker::key(&lock),
        };
        Ok(Self { redis, connection, way, key })
    }

    pub(super) fn redis(&self) -> &Redis {
        &self.redis
    }

    /// Starts a worker, who wants the lock for a time, and waits for it for a time.
    pub(super) fn worker(
        &self,
        actor: Actor,
        ttl: Duration,
        wait: Duration,
    ) -> anyhow::Result<Client> {
        let (way, redis) = (self.way, &self.redis.url());
        Client::start(actor, Work::Worker { lock: LOCK, way, ttl, wait, redis })
    }

    /// What the lock is set to, as Redis has it: nothing if it is free.
    pub(super) async fn lock(&mut self) -> anyhow::Result<Option<String>> {
        Ok(self.connection.get(&self.key).await?)
    }

    /// After how many milliseconds Redis will free the lock by itself: never, if there are none.
    pub(super) async fn ends_in(&mut self) -> anyhow::Result<Option<u64>> {
        let remaining: i64 = self.connection.pttl(&self.key).await?;
        Ok(remaining.try_into().ok())
    }

    /// Waits until Redis has let the lock go, which was this client's.
    pub(super) async fn runs_out(
        &mut self,
        whose: Actor,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        let gone = async {
            while self.lock().await?.is_some() {
                sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        };
        timeout(RUNS_OUT_WITHIN, gone).await.context("the lease did not end")??;
        note_of(whose, "lease-expired", recorder);
        Ok(())
    }

    /// Waits for a client's next step, which is to give a lock back, and notes what became of the
    /// lock of another, who has it.
    pub(super) async fn given_back_by(
        &mut self,
        client: &mut Client,
        owner: Actor,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        client.gives_back(recorder).await?;
        self.note_kept(owner, recorder).await
    }

    /// Notes whether the lock is still there, which a client has.
    pub(super) async fn note_kept(
        &mut self,
        owner: Actor,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        let event = if self.lock().await?.is_none() { "lock-deleted" } else { "lock-kept" };
        note_of(owner, event, recorder);
        Ok(())
    }
}

/// Notes what Redis did to a client's lock.
fn note_of(whose: Actor, event: &str, recorder: &mut Recorder) {
    let whose = Map::from_iter([("whose".to_owned(), whose.title().into())]);
    recorder.note_with(Actor::Redis, event, None, whose);
}

/// How many clients had the lock at once, at most, by these events: each from when it got the lock to
/// when one of these events ended that for it.
pub(super) fn most_at_once<'a>(events: impl Iterator<Item = &'a Event>, ends: &[&str]) -> u64 {
    let mut holders = HashSet::new();
    let mut most = 0;
    for event in events {
        // What Redis does is done to somebody's lock.
        let who = event.text("whose").unwrap_or(event.actor.title());
        if event.event == "acquired" {
            holders.insert(who);
        } else if ends.contains(&&*event.event) {
            holders.remove(who);
        }
        most = most.max(holders.len());
    }
    most.try_into().expect("there are few clients")
}

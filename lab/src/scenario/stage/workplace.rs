//! A private Redis with one lock, and workers that take it in one of many ways.

use std::{collections::HashSet, time::Duration};

use fence::ResourceName;
use redis::{AsyncCommands, aio::MultiplexedConnection};

use super::{Work, driver::Client, lock};
use crate::{
    client::worker::{self, Way},
    record::{Actor, Event, Recorder},
    servers::Redis,
};

pub(crate) const LOCK: &str = "seat-12";

pub(crate) struct Workplace {
    redis: Redis,
    connection: MultiplexedConnection,
    way: Way,
    /// Where the lock is kept.
    key: String,
}

impl Workplace {
    pub(crate) async fn start(way: Way) -> anyhow::Result<Self> {
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

    pub(crate) fn redis(&self) -> &Redis {
        &self.redis
    }

    /// Starts a worker, who wants the lock for a time, and waits for it for a time.
    pub(crate) fn worker(
        &self,
        actor: Actor,
        ttl: Duration,
        wait: Duration,
    ) -> anyhow::Result<Client> {
        let (way, redis) = (self.way, &self.redis.url());
        Client::start(actor, Work::Worker { lock: LOCK, way, ttl, wait, redis })
    }

    /// What the lock is set to, as Redis has it: nothing if it is free.
    pub(crate) async fn lock(&mut self) -> anyhow::Result<Option<String>> {
        Ok(self.connection.get(&self.key).await?)
    }

    /// After how many milliseconds Redis will free the lock by itself: never, if there are none.
    pub(crate) async fn ends_in(&mut self) -> anyhow::Result<Option<u64>> {
        let remaining: i64 = self.connection.pttl(&self.key).await?;
        Ok(remaining.try_into().ok())
    }

    /// Waits until Redis has let the lock go, which was this client's.
    pub(crate) async fn runs_out(
        &self,
        whose: Actor,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        lock::runs_out(&self.redis, &self.key, whose, None, recorder).await
    }

    /// Waits for a client's next step, which is to give a lock back, and notes what became of the
    /// lock of another, who has it.
    pub(crate) async fn given_back_by(
        &mut self,
        client: &mut Client,
        owner: Actor,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        client.gives_back(recorder).await?;
        self.note_kept(owner, recorder).await
    }

    /// Notes whether the lock is still there, which a client has.
    pub(crate) async fn note_kept(
        &mut self,
        owner: Actor,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        let event = if self.lock().await?.is_none() { "lock-deleted" } else { "lock-kept" };
        recorder.note_with(Actor::Redis, event, None, lock::of(owner));
        Ok(())
    }
}

/// How many clients had the lock at once, at most, by these events: each from when it got the lock to
/// when one of these events ended that for it.
pub(crate) fn most_at_once<'a>(events: impl Iterator<Item = &'a Event>, ends: &[&str]) -> u64 {
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

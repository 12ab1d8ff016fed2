//! A private Redis with one lock, and workers that take it in one of many ways.

use std::time::Duration;

use fence::ResourceName;
use tokio::time::{sleep, timeout};

use super::{
    Work,
    driver::Client,
    lock::{self, LAST_TOKEN},
};
use crate::{
    client::worker::{self, Way},
    record::{Actor, Event, Recorder},
};
use testbed::Redis;

pub(crate) const LOCK: &str = "seat-12";
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) struct Workplace {
    redis: Redis,
    way: Way,
    /// Where the lock is kept.
    key: String,
    /// What ends a client's having the lock.
    ends: &'static [&'static str],
}

impl Workplace {
    pub(crate) async fn start(
        way: Way,
        ends: &'static [&'static str],
        recorder: &mut Recorder,
    ) -> anyhow::Result<Self> {
        let redis = Redis::start().await?;
        let lock: ResourceName = LOCK.parse()?;
        let key = match way {
            Way::Scripts | Way::ScriptsAndRenewal => {
                lock::preset(&redis, &lock, LAST_TOKEN, recorder).await?;
                lock::key(&lock)
            }
            _ => worker::key(&lock),
        };
        Ok(Self { redis, way, key, ends })
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
        let client = Client::start(actor, Work::Worker { lock: LOCK, way, ttl, wait, redis })?;
        Ok(client.among_holders(self.ends))
    }

    /// How many clients had the lock at once, at most.
    pub(crate) fn most_at_once(&self, recorder: &Recorder) -> u64 {
        most_at_once(recorder, self.ends)
    }

    /// What the lock is set to, as Redis has it: nothing if it is free.
    pub(crate) async fn lock(&self) -> anyhow::Result<Option<String>> {
        self.redis.command(&["GET", &self.key]).await
    }

    /// After how many milliseconds Redis will free the lock by itself, at once if it has; never, if
    /// there are none.
    pub(crate) async fn ends_in(&self) -> anyhow::Result<Option<u64>> {
        Ok(match self.redis.command::<i64>(&["PTTL", &self.key]).await? {
            -1 => None,
            remaining => Some(remaining.try_into().unwrap_or(0)),
        })
    }

    /// Waits for so long at most until Redis has let the lock go that was set to this, and was this
    /// client's; by then another may have it. Returns whether it has.
    pub(crate) async fn runs_out_within(
        &self,
        time: Duration,
        lock: Option<String>,
        whose: Actor,
        recorder: &mut Recorder,
    ) -> anyhow::Result<bool> {
        let gone = async {
            while self.lock().await? == lock {
                sleep(POLL_INTERVAL).await;
            }
            anyhow::Ok(())
        };
        match timeout(time, gone).await {
            Ok(gone) => gone?,
            Err(_) => return Ok(false),
        }
        recorder.note_with(Actor::Redis, "lease-expired", None, lock::of(whose));
        Ok(true)
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
        &self,
        client: &mut Client,
        owner: Actor,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        client.gives_back(recorder).await?;
        self.note_kept(owner, recorder).await
    }

    /// Notes whether the lock is still there, which a client has.
    pub(crate) async fn note_kept(
        &self,
        owner: Actor,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        let event = if self.lock().await?.is_none() { "lock-deleted" } else { "lock-kept" };
        recorder.note_with(Actor::Redis, event, None, lock::of(owner));
        Ok(())
    }
}

/// How many clients had the lock at once, at most, where these end a client's having it.
pub(crate) fn most_at_once(recorder: &Recorder, ends: &[&str]) -> u64 {
    let events: Vec<_> = recorder.events().collect();
    let at_once = |until| holders(events[..until].iter().copied(), ends).len();
    let most = (0..=events.len()).map(at_once).max().unwrap_or(0);
    most.try_into().expect("there are few clients")
}

/// Who has the lock after these events: each from when it got it to when one of these ended that for
/// it.
pub(crate) fn holders<'a>(events: impl Iterator<Item = &'a Event>, ends: &[&str]) -> Vec<&'a str> {
    let mut holders = Vec::new();
    for event in events {
        // What Redis does is done to somebody's lock.
        let who = event.text("whose").unwrap_or(event.actor.title());
        if event.event == "acquired" {
            holders.push(who);
        } else if ends.contains(&&*event.event) {
            holders.retain(|holder| *holder != who);
        }
    }
    holders
}

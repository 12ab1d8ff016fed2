//! A private Redis as a lock service: its clients, and the state of the lock `r` as Redis shows it.

use std::{error::Error, time::Duration};

use lock_client::{AcquireError, Lease, Locks, Terms, Ttl};
use testbed::{Redis, wait::until_async};
use tokio::task::JoinHandle;

use crate::names::name;

const PATIENCE: Duration = Duration::from_secs(30);

/// A client that waits longer for answers than by default: a busy machine delays them.
pub(crate) fn locks(url: &str) -> Locks {
    let redis = lock_client::redis::Redis::open(url).unwrap();
    Locks::new(redis.answer_within(Duration::from_secs(5)))
}

/// A client with the default time-outs, for a Redis that is silent on purpose.
pub(crate) fn impatient_locks(url: &str) -> Locks {
    Locks::new(lock_client::redis::Redis::open(url).unwrap())
}

pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::new(Duration::from_millis(millis)).unwrap()
}

/// The terms of a single try.
pub(crate) fn tried(millis: u64) -> Terms {
    Terms::new(ttl(millis)).no_wait()
}

/// The terms of a single try, whose lease is not renewed.
pub(crate) fn unrenewed(millis: u64) -> Terms {
    tried(millis).without_renewal().detachable()
}

/// The same, whose lease outlives the test.
pub(crate) fn lasting() -> Terms {
    unrenewed(600_000)
}

/// A Redis whose next token for `r` is this one. It knows all scripts, so that each step is one
/// request.
pub(crate) async fn redis_before(token: u64) -> Redis {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    lease.renew().await.unwrap();
    lease.reissue(lease.token().unwrap()).await.unwrap();
    lease.release().await.unwrap();
    locks.status(&name("r")).await.unwrap();
    set_counter(&redis, token - 1).await;
    redis
}

pub(crate) async fn set_counter(redis: &Redis, last: u64) {
    redis.set("fenced:{r}:token", &last.to_string()).await.unwrap();
}

/// Waits until every lock is free.
pub(crate) async fn until_free(redis: &Redis) {
    let is_free = async || Ok(redis.command::<Vec<String>>(&["KEYS", "*:lock"]).await?.is_empty());
    until_async(PATIENCE, is_free).await.unwrap();
}

/// The number of lock channels that have subscribers.
pub(crate) async fn channels(redis: &Redis) -> anyhow::Result<usize> {
    Ok(redis.command::<Vec<String>>(&["PUBSUB", "CHANNELS", "fenced:*"]).await?.len())
}

pub(crate) async fn until_listening(redis: &Redis, count: usize) {
    until_async(PATIENCE, async || Ok(channels(redis).await? == count)).await.unwrap();
}

/// The number of scripts run, from `INFO commandstats`.
pub(crate) async fn scripts_run(redis: &Redis) -> u64 {
    let info: String = redis.command(&["INFO", "commandstats"]).await.unwrap();
    let calls = |line: &str| line.split_once("calls=")?.1.split_once(',')?.0.parse::<u64>().ok();
    let of = |name: &str| info.lines().find(|line| line.starts_with(name)).and_then(calls);
    of("cmdstat_evalsha:").unwrap_or_default() + of("cmdstat_eval:").unwrap_or_default()
}

/// Starts the only waiter for `r`, and returns when it waits.
pub(crate) async fn waiting(
    redis: &Redis,
    locks: &Locks,
    terms: Terms,
) -> JoinHandle<Result<Lease, AcquireError>> {
    let scripts_before = scripts_run(redis).await;
    let locks = locks.clone();
    let waiter = tokio::spawn(async move { locks.acquire(&name("r"), terms).await });
    until_waiting(redis, scripts_before).await;
    waiter
}

/// Waits until the only client that runs scripts waits: it has tried, subscribed, and tried once
/// more. Before that last try, it would not need a notification to acquire a freed lock.
pub(crate) async fn until_waiting(redis: &Redis, scripts_before: u64) {
    let waits =
        async || Ok(channels(redis).await? == 1 && scripts_run(redis).await >= scripts_before + 2);
    until_async(PATIENCE, waits).await.unwrap();
}

/// An error and its causes in one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let cause = error.source().map(with_causes);
    std::iter::once(error.to_string()).chain(cause).collect::<Vec<_>>().join(": ")
}

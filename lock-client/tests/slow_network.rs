//! A Redis that is far away.

use std::time::Duration;

use lock_client::{AcquireError, Locks};
use testbed::{Proxy, Redis, Sentinels, proxy::Latency};
use tokio::time::timeout;

use crate::{
    lock_service::{impatient_locks, lasting, locks, tried, unrenewed, until_free, waiting},
    names::name,
};

#[tokio::test]
async fn grant_that_arrives_after_its_deadline_is_an_error_of_the_acquire() {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    let locks = locks(&proxy.url("redis"));
    locks.status(&name("r")).await.unwrap();
    proxy.add(Latency(Duration::from_millis(100)));
    let late = locks.acquire(&name("r"), tried(50)).await;
    assert!(matches!(late, Err(AcquireError::Unavailable { .. })), "{late:?}");
    until_free(&redis).await;
    // The control: a ttl that is long enough.
    let lease = locks.acquire(&name("r"), unrenewed(60_000)).await.unwrap();
    lease.token().unwrap();
    lease.release().await.unwrap();
}

/// It is longer than the time in which Redis usually answers.
#[tokio::test]
async fn redis_that_is_far_away_is_used_if_it_is_given_time() {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    proxy.add(Latency(Duration::from_millis(600)));
    let impatient = impatient_locks(&proxy.url("redis")).acquire(&name("r"), tried(60_000)).await;
    assert!(matches!(impatient, Err(AcquireError::Unavailable { .. })), "{impatient:?}");

    let far = lock_client::redis::Redis::open(&proxy.url("redis")).unwrap();
    let far = Locks::new(far.answer_within(Duration::from_millis(1_500)));
    let lease = far.acquire(&name("r"), lasting()).await.unwrap();
    lease.renew().await.unwrap();
    let waiter = waiting(&redis, &far, lasting().wait(Duration::from_secs(60))).await;
    lease.release().await.unwrap();
    let next = timeout(Duration::from_secs(20), waiter).await.expect("it is notified");
    next.unwrap().unwrap().release().await.unwrap();
    until_free(&redis).await;
}

#[tokio::test]
async fn sentinels_that_are_far_away_are_used_if_they_are_given_time() {
    let mut world = Sentinels::start().await.unwrap();
    let (mut proxies, mut addresses) = (Vec::new(), Vec::new());
    for sentinel in world.sentinels() {
        let proxy = Proxy::start(sentinel.socket()).await.unwrap();
        proxy.add(Latency(Duration::from_millis(600)));
        addresses.push(proxy.address().to_string());
        proxies.push(proxy);
    }
    let url = format!("redis+sentinel://{}/locks", addresses.join(","));
    let impatient = impatient_locks(&url).acquire(&name("r"), tried(60_000)).await;
    assert!(matches!(impatient, Err(AcquireError::Unavailable { .. })), "{impatient:?}");

    let far = lock_client::redis::Redis::open(&url).unwrap();
    let far = Locks::new(far.answer_within(Duration::from_millis(1_500)));
    far.acquire(&name("r"), lasting()).await.unwrap().release().await.unwrap();
}

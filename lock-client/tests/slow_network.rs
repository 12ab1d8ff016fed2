//! A Redis that is far away.

use std::time::Duration;

use lock_client::AcquireError;
use testbed::{Proxy, Redis, proxy::Latency};

use crate::{
    lock_service::{locks, tried, unrenewed, until_free},
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

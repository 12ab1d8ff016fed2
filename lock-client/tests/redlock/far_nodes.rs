//! Nodes that are far away.

use std::time::Duration;

use fence::Holder;
use futures_util::future::try_join_all;
use lock_client::{
    Locks, Order,
    backend::{Attempt, Backend, BackendError},
    redlock::{Redlock, operator::Operator},
};
use testbed::{
    Proxy, Redis,
    proxy::{Latency, Rule, Verdict},
    wait::until_async,
};

use super::cluster::{cluster_of, set_counters, until_free};
use crate::{
    lock_service::{lasting, ttl},
    names::name,
};

/// A round trip above 250 ms leaves no time for a seal within half a second.
#[tokio::test]
async fn token_is_sealed_on_nodes_that_are_far_away_if_they_are_given_time() {
    let mut cluster = cluster_of(3).await;
    let (r, holder) = (name("r"), Holder::random());
    // Two nodes are left, with different counters, so that each round has to seal.
    cluster.nodes_mut()[2].process().kill().unwrap();
    set_counters(&cluster, &[5, 6]).await;
    let nodes = &cluster.nodes()[..2];
    let proxies = cluster.nodes().iter().map(Redis::socket).map(Proxy::start);
    let proxies = try_join_all(proxies).await.unwrap();
    for proxy in &proxies {
        proxy.add(Latency(Duration::from_millis(300)));
    }
    let urls: Vec<_> = proxies.iter().map(|proxy| proxy.url("redis")).collect();
    let impatient = Redlock::open(&urls).unwrap();
    // The first requests are used up by connecting.
    let connected = async || Ok(impatient.status(&r).await.is_ok());
    until_async(Duration::from_secs(20), connected).await.unwrap();
    let rejected = impatient.try_acquire(&r, &holder, ttl(60_000), Order::Unordered).await;
    assert!(matches!(rejected, Err(BackendError::Unavailable(_))), "{rejected:?}");
    until_free(nodes).await;

    set_counters(&cluster, &[15, 16]).await;
    let far = Redlock::open(&urls).unwrap().answer_within(Duration::from_millis(1_500));
    far.status(&r).await.unwrap();
    let tried = far.try_acquire(&r, &holder, ttl(60_000), Order::Unordered).await.unwrap();
    let Attempt::Granted { ownership, token, .. } = tried else {
        panic!("nobody else asks for the lock: {tried:?}")
    };
    assert_eq!(token.as_u64(), 17, "the higher grant");
    assert!(far.release(&r, &ownership.holder, Some(token)).await.unwrap());
    until_free(nodes).await;

    let far = Locks::new(far);
    let lease = far.acquire(&r, lasting()).await.unwrap();
    lease.renew().await.unwrap();
    lease.release().await.unwrap();
    far.wait_for_background().await;
    until_free(nodes).await;
}

/// By itself, the crate `redis` gives a connection up after a second.
#[tokio::test]
async fn connection_may_take_as_long_as_the_patience_says() {
    let cluster = cluster_of(3).await;
    let proxies = cluster.nodes().iter().map(Redis::socket).map(Proxy::start);
    let proxies = try_join_all(proxies).await.unwrap();
    for proxy in &proxies {
        proxy.add(Latency(Duration::from_millis(1_200)));
    }
    let urls: Vec<_> = proxies.iter().map(|proxy| proxy.url("redis")).collect();
    let patience = Duration::from_secs(5);
    let far = Redlock::open(&urls).unwrap().answer_within(patience);
    far.status(&name("r")).await.unwrap();
    let far = Operator::new(&urls).unwrap().answer_within(patience);
    assert_eq!(far.inspect().await.cluster.voting, 3);
}

/// The record of a node arrives late.
#[derive(Debug)]
struct SlowRecord;

impl Rule for SlowRecord {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        match String::from_utf8_lossy(request).contains("HMGET") {
            true => Verdict::DelayReply(Duration::from_millis(4_200)),
            false => Verdict::Pass,
        }
    }
}

/// The client learns of the longest ttl only when it asks for votes. Other requests share the
/// connections.
#[tokio::test]
async fn wrong_ttl_costs_no_connection() {
    let cluster = cluster_of(3).await;
    let proxies = cluster.nodes().iter().map(Redis::socket).map(Proxy::start);
    let proxies = try_join_all(proxies).await.unwrap();
    for proxy in &proxies {
        proxy.add(SlowRecord);
    }
    let redlock = Redlock::open(proxies.iter().map(|proxy| proxy.url("redis"))).unwrap();
    // The record takes longer than an answer, and not as long as a connection.
    let redlock = redlock.answer_within(Duration::from_secs(3));
    let acquire = async |ms| {
        redlock.try_acquire(&name("r"), &Holder::random(), ttl(ms), Order::Unordered).await
    };
    let rejected = acquire(600_001).await;
    assert!(matches!(rejected, Err(BackendError::Invalid(_))), "{rejected:?}");
    acquire(600_000).await.unwrap();
    for proxy in &proxies {
        assert_eq!(proxy.requests("HMGET"), 1, "one connection");
    }
}

//! Redis alone, with a replica, and Redlock.

use lock_client::{Locks, redlock::Redlock};
use testbed::{NodeKind, Redis, RedlockNodes};

use super::{MINUTE, Storages, TEN_MINUTES, TWO_HOLDERS, TWO_HOLDERS_OF_ONE_TOKEN, Then};
use crate::{
    lock_service::{lasting, locks},
    names::name,
    start_cluster::start_cluster,
};

/// Above every clock: a lost counter starts far below this.
const HIGH: u64 = 900_000_000_000_000;

const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

#[tokio::test]
async fn one_node_that_keeps_nothing() {
    let storages = Storages::start().await;
    let mut redis = Redis::start_with_own_clock(&[]).await.unwrap();
    let locks = locks(&redis.url());

    let first = storages.first(&locks, "undisturbed").await;
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);

    let first = storages.first(&locks, "clock-jump").await;
    redis.jump(TEN_MINUTES + MINUTE).unwrap();
    assert_eq!(storages.then(first, &locks).await, TWO_HOLDERS);

    let first = storages.first(&locks, "restart").await;
    redis.restart().await.unwrap();
    assert_eq!(storages.then(first, &locks).await, TWO_HOLDERS);

    let [before, after] = tokens_around_a_restart(&mut redis, &locks).await;
    assert!(before == HIGH + 1 && after < before, "{after} follows {before}");
}

#[tokio::test]
async fn one_node_that_synchronises_every_write() {
    let storages = Storages::start().await;
    let mut redis = Redis::start_with_own_clock(&DURABLE).await.unwrap();
    let locks = locks(&redis.url());

    let first = storages.first(&locks, "restart").await;
    redis.restart().await.unwrap();
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);

    let tokens = tokens_around_a_restart(&mut redis, &locks).await;
    assert_eq!(tokens, [HIGH + 1, HIGH + 2]);

    let first = storages.first(&locks, "clock-jump").await;
    redis.jump(TEN_MINUTES + MINUTE).unwrap();
    assert_eq!(storages.then(first, &locks).await, TWO_HOLDERS);
}

/// The token of a lock that is held during a restart, and that of the next holder after the release.
async fn tokens_around_a_restart(redis: &mut Redis, locks: &Locks) -> [u64; 2] {
    redis.set("fenced:{token}:token", &HIGH.to_string()).await.unwrap();
    let lease = locks.acquire(&name("token"), lasting()).await.unwrap();
    let before = lease.token().unwrap();
    redis.restart().await.unwrap();
    // This fails if the lock is gone. If it is still held, the acquire fails then.
    let _ = lease.release().await;
    let next = locks.acquire(&name("token"), lasting()).await.unwrap();
    [before, next.token().unwrap()].map(|token| token.as_u64())
}

#[tokio::test]
async fn primary_whose_replica_takes_over() {
    let storages = Storages::start().await;
    let primary = Redis::start().await.unwrap();
    let locks_at_first = locks(&primary.url());
    // The replica receives this grant and its release, but not the next grant.
    let heard_of = locks_at_first.acquire(&name("failover"), lasting()).await.unwrap();
    heard_of.release().await.unwrap();
    let replica = Redis::replica_of(&primary).await.unwrap();
    replica.cut();
    let first = storages.first(&locks_at_first, "failover").await;
    replica.promote().await.unwrap();
    let then = storages.then(first, &locks(&replica.redis().url())).await;
    assert_eq!(then, TWO_HOLDERS_OF_ONE_TOKEN);
}

#[tokio::test]
async fn redlock_on_three_nodes() {
    let storages = Storages::start().await;
    let kinds = [NodeKind::OwnClock, NodeKind::OwnClock, NodeKind::FORGETFUL];
    let mut nodes = RedlockNodes::start(&kinds).await.unwrap();
    start_cluster(&nodes, TEN_MINUTES).await;
    let locks = Locks::new(Redlock::open(nodes.urls()).unwrap());

    // One clock that jumps frees one node, which is no majority.
    let first = storages.first(&locks, "clock-jump").await;
    nodes.nodes()[0].jump(TEN_MINUTES + MINUTE).unwrap();
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);

    let first = storages.first(&locks, "clocks-jump").await;
    for node in &nodes.nodes()[..2] {
        node.jump(TEN_MINUTES + MINUTE).unwrap();
    }
    assert_eq!(storages.then(first, &locks).await, TWO_HOLDERS);

    // A node that came up with nothing has no vote.
    let first = storages.first(&locks, "restart").await;
    nodes.nodes_mut()[2].restart().await.unwrap();
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);

    let first = storages.first(&locks, "restarts").await;
    nodes.nodes_mut()[1].restart().await.unwrap();
    assert_eq!(storages.then(first, &locks).await, Then::NoMajority);
}

/// No setting proves what a restarted node has kept, so none brings its vote back.
#[tokio::test]
async fn redlock_on_three_nodes_that_synchronise_every_write() {
    let storages = Storages::start().await;
    let mut nodes = RedlockNodes::start(&[NodeKind::DURABLE; 3]).await.unwrap();
    start_cluster(&nodes, TEN_MINUTES).await;
    let locks = Locks::new(Redlock::open(nodes.urls()).unwrap());
    let first = storages.first(&locks, "restarts").await;
    nodes.nodes_mut()[0].restart().await.unwrap();
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);

    let first = storages.first(&locks, "all-restart").await;
    for node in nodes.nodes_mut() {
        node.restart().await.unwrap();
    }
    assert_eq!(storages.then(first, &locks).await, Then::NoMajority);
}

//! What waiters leave behind in ZooKeeper, and what they read.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use fence::Holder;
use futures_util::future::join_all;
use lock_client::{
    Locks, Order, Terms,
    backend::{Backend, BackendError},
};
use testbed::{Proxy, ZooKeeper, wait::until_async};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    service::{SOON, acquired, attempt, busy, client, held, release, secs},
    strike::{MULTI_READ, count},
};
use crate::names::name;

/// A waiter has a short session, and needs a long one later.
#[tokio::test]
async fn waiter_whose_ttl_is_too_long_does_not_wait() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    acquired(&locks, &name("r"), secs(60)).await;
    let tried = locks.try_acquire(&name("r"), &Holder::random(), secs(601), Order::Fair).await;
    assert!(matches!(tried, Err(BackendError::Invalid(_))), "{tried:?}");
    assert_eq!(locks.status(&name("r")).await.unwrap().queued, 0);
    assert_eq!(zookeeper.sessions(0).await.unwrap().len(), 2, "the owner's, and the client's");
}

#[tokio::test]
async fn hundred_waiters_of_a_client_share_two_connections() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let [holder, waiting] = [(); 2].map(|()| Locks::new(client(&zookeeper.url())));
    let lease = holder.acquire(&name("r"), secs(40)).await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..100 {
        let waiting = waiting.clone();
        let terms = Terms::new(secs(40)).fair();
        waiters.spawn(async move { waiting.acquire(&name("r"), terms).await.map(drop) });
    }
    let all_wait = async || Ok(holder.status(&name("r")).await?.queued == 100);
    until_async(SOON, all_wait).await.unwrap();
    // Longer than the pause between two tries.
    for _ in 0..30 {
        let connections = zookeeper.connections(0).await.unwrap();
        assert!(connections <= 5, "two of each client, and the question: {connections}");
        sleep(Duration::from_millis(200)).await;
    }
    lease.release().await.unwrap();
    let first = timeout(SOON, waiters.join_next()).await.expect("the first one is next");
    first.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn tries_that_fail_make_no_session() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let owner = acquired(&locks, &name("r"), secs(60)).await;
    let before = zookeeper.sessions(0).await.unwrap();
    for _ in 0..3 {
        busy(attempt(&locks, &Holder::random(), Order::Unordered).await);
    }
    assert_eq!(zookeeper.sessions(0).await.unwrap(), before);
    assert!(release(&locks, &owner).await);
    assert_eq!(zookeeper.sessions(0).await.unwrap(), before);
}

/// So does its watch.
#[tokio::test]
async fn try_of_a_waiter_reads_one_place_until_that_is_gone() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let locks = client(&proxy.url("zookeeper"));
    acquired(&locks, &name("r"), secs(60)).await;
    let waiters = [(); 40].map(|()| Holder::random());
    for waiter in &waiters {
        busy(attempt(&locks, waiter, Order::Fair).await);
    }
    let [.., before_last, last] = &waiters;
    let looks = count(&proxy, MULTI_READ);
    for _ in 0..3 {
        drop(locks.subscribe(&name("r"), last, Order::Fair).await.unwrap());
        assert_eq!(busy(attempt(&locks, last, Order::Fair).await).ahead, Some(39));
    }
    assert_eq!(looks.load(Ordering::SeqCst), 0);
    assert!(!locks.release(&name("r"), before_last, None).await.unwrap());
    looks.store(0, Ordering::SeqCst);
    assert_eq!(busy(attempt(&locks, last, Order::Fair).await).ahead, Some(38));
    assert_eq!(looks.load(Ordering::SeqCst), 2, "the list of the queue, and all its places");
}

/// Each message reads 256 places.
#[tokio::test]
async fn queue_that_needs_several_messages_is_read_whole() {
    const WAITERS: u64 = 270;
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let owner = acquired(&locks, &name("r"), secs(60)).await;
    let waiters: Vec<_> = (0..WAITERS).map(|_| Holder::random()).collect();
    let (first, others) = waiters.split_first().unwrap();
    busy(attempt(&locks, first, Order::Fair).await);
    let attempts = others.iter().map(|waiter| attempt(&locks, waiter, Order::Fair));
    for attempt in join_all(attempts).await {
        busy(attempt);
    }
    let status = locks.status(&name("r")).await.unwrap();
    assert_eq!((status.held.unwrap().token, status.queued), (owner.token, WAITERS));
    assert_eq!(busy(attempt(&locks, &Holder::random(), Order::Fair).await).ahead, Some(WAITERS));
    assert!(release(&locks, &owner).await);
    assert!(held(attempt(&locks, first, Order::Fair).await).token > owner.token);
}

/// The place before its own is gone two times before: the other waiter leaves, and the owner moves.
#[tokio::test]
async fn waiter_is_notified_of_its_turn() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let owner = acquired(&locks, &name("r"), secs(60)).await;
    let [first, second] = [(); 2].map(|()| Holder::random());
    for waiter in [&first, &second] {
        busy(attempt(&locks, waiter, Order::Fair).await);
    }
    let wakeups = locks.subscribe(&name("r"), &second, Order::Fair).await.unwrap();
    assert!(!locks.release(&name("r"), &first, None).await.unwrap());
    let early = timeout(Duration::from_millis(300), wakeups.next()).await;
    assert!(early.is_err(), "it is held");
    let renewed = locks.renew(&name("r"), &owner.ownership, secs(90)).await;
    assert_eq!(renewed.unwrap(), Some(owner.token));
    // It may try in vain, because the owner's first place is gone.
    let _ = timeout(Duration::from_millis(300), wakeups.next()).await;
    assert_eq!(busy(attempt(&locks, &second, Order::Fair).await).ahead, Some(0));
    assert!(release(&locks, &owner).await);
    timeout(SOON, wakeups.next()).await.expect("it is the turn of the second");
    assert!(held(attempt(&locks, &second, Order::Fair).await).token > owner.token);
}

/// Each write is made durable before its answer. Even one that fails costs as much as the release.
#[tokio::test]
async fn waiter_acquires_without_a_write() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let owner = acquired(&locks, &name("r"), secs(60)).await;
    let waiter = Holder::random();
    busy(attempt(&locks, &waiter, Order::Fair).await);
    let before = zookeeper.last_change(0).await.unwrap();
    assert!(release(&locks, &owner).await);
    assert!(held(attempt(&locks, &waiter, Order::Fair).await).token > owner.token);
    assert_eq!(zookeeper.last_change(0).await.unwrap() - before, 1, "the release");
}

/// Empty containers are deleted every half second, here in the midst of attempts.
#[tokio::test]
async fn container_that_is_deleted_during_an_attempt_is_made_again() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let (locks, begun) = (client(&zookeeper.url()), Instant::now());
    let first = acquired(&locks, &name("r"), secs(60)).await;
    let nodes = zookeeper.nodes(0).await.unwrap();
    assert!(release(&locks, &first).await);
    let mut last = Some(first.token);
    while begun.elapsed() < Duration::from_secs(3) {
        let lock = acquired(&locks, &name("r"), secs(60)).await;
        assert!(last < Some(lock.token), "{last:?}, then {}", lock.token);
        last = Some(lock.token);
        assert!(release(&locks, &lock).await);
    }
    let is_gone = async || Ok(zookeeper.nodes(0).await? == nodes - 2);
    until_async(SOON, is_gone).await.expect("the holder's node and the container go");
    assert!(last < Some(acquired(&locks, &name("r"), secs(60)).await.token));
}

/// A waiter may subscribe before there is a container, and the container may go while it waits.
#[tokio::test]
async fn waiter_is_notified_over_the_end_of_the_container() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let wakeups = locks.subscribe(&name("r"), &Holder::random(), Order::Unordered).await.unwrap();
    for _ in 0..2 {
        let owner = acquired(&locks, &name("r"), secs(60)).await;
        let early = timeout(Duration::from_millis(300), wakeups.next()).await;
        assert!(early.is_err(), "it is held");
        let nodes = zookeeper.nodes(0).await.unwrap();
        assert!(release(&locks, &owner).await);
        timeout(SOON, wakeups.next()).await.expect("the waiter is notified");
        let is_gone = async || Ok(zookeeper.nodes(0).await? == nodes - 2);
        until_async(SOON, is_gone).await.expect("the holder's node and the container go");
    }
}

//! Tokens, and the locks that they belong to.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use fence::Holder;
use futures_util::future::join_all;
use lock_client::{
    Moment, Order, Ttl,
    backend::{Backend, BackendError},
};
use testbed::{Proxy, ZooKeeper, wait::until_async};

use super::service::{SOON, acquired, attempt, busy, client, held, release, secs, until_free};
use crate::names::name;

#[tokio::test]
async fn repeated_attempt_of_the_holder_returns_the_same_grant_and_sets_the_full_ttl() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let (locks, holder) = (client(&zookeeper.url()), Holder::random());
    let first = held(locks.try_acquire(&name("r"), &holder, secs(10), Order::Unordered).await);
    for (ttl, order) in [(10, Order::Unordered), (60, Order::Unordered), (60, Order::Fair)] {
        let again = held(locks.try_acquire(&name("r"), &holder, secs(ttl), order).await);
        assert_eq!((again.token, &again.ownership), (first.token, &first.ownership));
        assert!(again.asked > first.asked);
        let held = locks.status(&name("r")).await.unwrap().held.unwrap();
        assert!(held.remaining.unwrap() >= Duration::from_secs(ttl), "{held:?}");
    }
    assert!(release(&locks, &first).await);
    assert!(!zookeeper.ephemeral_nodes().await.unwrap().contains("/fenced"));
}

/// Renewals keep a lock past its first ttl, and no longer.
#[tokio::test]
async fn lock_lasts_as_long_as_it_is_renewed() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let ttl = secs(6);
    let lock = acquired(&locks, &name("r"), ttl).await;
    let mut renewed = Moment::now();
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(1_800)).await;
        renewed = Moment::now();
        let token = locks.renew(&name("r"), &lock.ownership, ttl).await.unwrap();
        assert_eq!(token, Some(lock.token));
    }
    until_free(&locks).await;
    assert!(renewed.elapsed() >= ttl.as_duration(), "{:?}", renewed.elapsed());
}

#[tokio::test]
async fn renewal_for_another_ttl_keeps_the_lock_at_least_so_long() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(5)).await;
    let waiter = Holder::random();
    busy(attempt(&locks, &waiter, Order::Fair).await);
    // A renewal for less, at the end of `max_hold`, leaves the session as it is.
    for (millis, at_least) in [(60_000, 60), (300, 60), (5_000, 60), (90_000, 90)] {
        let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
        let renewed = locks.renew(&name("r"), &lock.ownership, ttl).await.unwrap();
        assert_eq!(renewed, Some(lock.token));
        let held = locks.status(&name("r")).await.unwrap().held.unwrap();
        assert_eq!(held.ownership, lock.ownership);
        assert!(held.remaining.unwrap() >= Duration::from_secs(at_least), "{millis}: {held:?}");
        // A lock that moves to another session is not free for a moment.
        assert_eq!(busy(attempt(&locks, &waiter, Order::Fair).await).ahead, Some(0));
    }
    assert!(release(&locks, &lock).await);
    let next = held(attempt(&locks, &waiter, Order::Fair).await);
    assert!(next.token > lock.token);
}

/// A waiter may list the queue before a move, and read its nodes after it. Without a second look, the
/// owner's place would be missing, and the waiter's the oldest.
#[tokio::test]
async fn lock_that_moves_to_longer_sessions_is_never_free() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let has_ended = AtomicBool::new(false);
    let moving = async {
        for millis in 60_001..60_201 {
            let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
            let renewed = locks.renew(&name("r"), &lock.ownership, ttl).await.unwrap();
            assert_eq!(renewed, Some(lock.token));
        }
        has_ended.store(true, Ordering::SeqCst);
    };
    let waiting = join_all((0..4).map(async |_| {
        let (locks, waiter) = (client(&zookeeper.url()), Holder::random());
        while !has_ended.load(Ordering::SeqCst) {
            busy(attempt(&locks, &waiter, Order::Fair).await);
            assert!(locks.status(&name("r")).await.unwrap().held.unwrap().token == lock.token);
        }
    }));
    tokio::join!(moving, waiting);
}

#[tokio::test]
async fn ttl_that_zookeeper_does_not_have_is_invalid() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let (locks, address) = (client(&zookeeper.url()), zookeeper.address(0));
    for (millis, reason) in [
        (999, "too short; the shortest session of this ZooKeeper lasts 1000 ms"),
        (600_001, "too long; the longest session of this ZooKeeper lasts 600000 ms"),
    ] {
        let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
        let expected = format!("ZooKeeper {address}: a ttl of {millis} ms is {reason}");
        for order in [Order::Unordered, Order::Fair] {
            match locks.try_acquire(&name("r"), &Holder::random(), ttl, order).await {
                Err(BackendError::Invalid(reason)) => assert_eq!(reason.to_string(), expected),
                other => panic!("{other:?}"),
            }
        }
        // One that lasts too long ends by itself, and others are closed.
        let are_gone = async || Ok(zookeeper.sessions(0).await?.is_empty());
        until_async(SOON, are_gone).await.unwrap();
    }
    for millis in [1_000, 1_001, 600_000] {
        let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
        let lock = acquired(&locks, &name("r"), ttl).await;
        assert!(release(&locks, &lock).await);
    }
}

#[tokio::test]
async fn names_differ_byte_for_byte() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let longest = "x".repeat(512);
    let nearly = format!("{}y", "x".repeat(511));
    let wide = "\u{10ffff}".repeat(128);
    // Some have characters that a path in ZooKeeper can't hold.
    let names = [
        "a",
        "A",
        "a/b",
        "a%2Fb",
        "a%2fb",
        "a%b",
        "a.b",
        "a+b",
        "a/holder-x",
        "zookeeper",
        "queues",
        "ä",
        "a\u{308}",
        "ß",
        "ss",
        " a",
        "a ",
        "...",
        "\u{e000}",
        "\u{ffff}",
        "\u{fff0}",
        "🐢",
        &longest,
        &nearly,
        &wide,
    ];
    let names = names.map(name);
    let mut kept = Vec::new();
    for name in &names {
        let lock = acquired(&locks, name, secs(60)).await;
        let other = Holder::random();
        busy(locks.try_acquire(name, &other, secs(60), Order::Unordered).await);
        let reissued = locks.reissue(name, &lock.ownership, lock.token).await.unwrap();
        kept.push((name, lock, reissued.unwrap()));
    }
    for (name, lock, token) in kept {
        let status = locks.status(name).await.unwrap();
        let held = status.held.unwrap();
        assert_eq!((held.ownership, held.token), (lock.ownership.clone(), token), "{name:?}");
        assert_eq!(status.queued, 0, "{name:?}");
        let holder = &lock.ownership.holder;
        assert!(locks.release(name, holder, Some(token)).await.unwrap(), "{name:?}");
    }
}

/// With an order by names instead, a later holder whose name is lower would own the lock too.
#[tokio::test]
async fn order_of_the_queue_is_not_that_of_the_holders() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let owner = held(attempt(&locks, &"z".parse().unwrap(), Order::Unordered).await);
    for (number, holder) in (0..).zip(["m", "a", "y", "0"]) {
        let holder = holder.parse().unwrap();
        assert_eq!(busy(attempt(&locks, &holder, Order::Fair).await).ahead, Some(number));
    }
    assert!(release(&locks, &owner).await);
}

/// Each request to make a node is a write, also one that fails.
#[tokio::test]
async fn acquire_makes_only_the_nodes_that_are_missing() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let locks = client(&proxy.url("zookeeper"));
    // The access list of each new node has this word.
    let creations = || proxy.requests("anyone");
    let first = acquired(&locks, &name("r"), secs(60)).await;
    // ZooKeeper deletes a container that is empty.
    let kept = "/fenced/queues/r/nobody";
    zookeeper.cli(&["create", kept]).await.unwrap();
    assert!(release(&locks, &first).await);
    let before = creations();
    let second = acquired(&locks, &name("r"), secs(60)).await;
    assert_eq!(creations() - before, 1, "the holder's");
    assert!(release(&locks, &second).await);
    let nodes = zookeeper.nodes(0).await.unwrap();
    zookeeper.cli(&["delete", kept]).await.unwrap();
    let is_deleted = async || Ok(zookeeper.nodes(0).await? == nodes - 2);
    until_async(SOON, is_deleted).await.expect("the container goes, too");
    let before = creations();
    acquired(&locks, &name("r"), secs(60)).await;
    assert_eq!(creations() - before, 3, "the holder's, the container, and the holder's again");
}

//! Waiters, in no order and in the queue.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fence::Holder;
use futures_util::future::join_all;
use lock_client::{
    Locks, Order, Terms,
    backend::{Attempt, Backend, BackendError},
};
use testbed::{Proxy, ZooKeeper, wait::until_async};
use tokio::time::timeout;

use super::service::{SOON, acquired, attempt, busy, client, held, release, secs};
use crate::names::name;

/// Sooner than a waiter tries without a notification.
const NOTIFIED: Duration = Duration::from_secs(4);

#[tokio::test]
async fn twenty_tasks_in_both_orders_hold_the_lock_one_at_a_time() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let (taken, tokens) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let tasks = (0..20).map(|number| {
        let locks = Locks::new(client(&zookeeper.url()));
        let (taken, tokens) = (taken.clone(), tokens.clone());
        tokio::spawn(async move {
            let terms = Terms::new(secs(60));
            let terms = if number % 2 == 0 { terms.fair() } else { terms };
            for _ in 0..3 {
                let lease = locks.acquire(&name("r"), terms).await.unwrap();
                assert!(!taken.swap(true, Ordering::SeqCst), "two hold the lock");
                tokens.lock().unwrap().push(lease.token().unwrap());
                tokio::task::yield_now().await;
                taken.store(false, Ordering::SeqCst);
                lease.release().await.unwrap();
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    let tokens = tokens.lock().unwrap();
    assert_eq!(tokens.len(), 60);
    assert!(tokens.is_sorted_by(|before, after| before < after), "{tokens:?}");
}

/// The release comes a little later in each round, before, during and after the waiter's try: either
/// the try acquires, or the waiter is notified.
#[tokio::test]
async fn release_notifies_the_waiter() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let (owner, other) = (client(&zookeeper.url()), client(&zookeeper.url()));
    for order in [Order::Fair, Order::Unordered] {
        let mut notified = 0;
        for delay in (0..20).map(Duration::from_millis) {
            let lock = acquired(&owner, &name("r"), secs(60)).await;
            let waiter = Holder::random();
            let waiting = async {
                let wakeups = other.subscribe(&name("r"), &waiter, order).await.unwrap();
                loop {
                    let tried = attempt(&other, &waiter, order).await;
                    if let Ok(Attempt::Granted { .. }) = tried {
                        return held(tried);
                    }
                    timeout(SOON, wakeups.next()).await.expect("the waiter is notified");
                    notified += 1;
                }
            };
            let releasing = async {
                tokio::time::sleep(delay).await;
                release(&owner, &lock).await
            };
            let (next, released) = tokio::join!(waiting, releasing);
            assert!(released);
            assert!(release(&other, &next).await);
        }
        assert!(notified > 0, "each release came before the try");
    }
}

#[tokio::test]
async fn queue_is_served_in_its_order_and_nobody_overtakes_it() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let mut owner = acquired(&locks, &name("r"), secs(60)).await;
    let waiters = [(); 3].map(|()| Holder::random());
    for (number, waiter) in (0..).zip(&waiters) {
        assert_eq!(busy(attempt(&locks, waiter, Order::Fair).await).ahead, Some(number));
    }
    assert_eq!(locks.status(&name("r")).await.unwrap().queued, 3);
    for (number, waiter) in waiters.iter().enumerate() {
        assert!(release(&locks, &owner).await);
        busy(attempt(&locks, &Holder::random(), Order::Unordered).await);
        for behind in &waiters[number + 1..] {
            busy(attempt(&locks, behind, Order::Fair).await);
        }
        owner = held(attempt(&locks, waiter, Order::Fair).await);
    }
    assert!(release(&locks, &owner).await);
    acquired(&locks, &name("r"), secs(60)).await;
}

#[tokio::test]
async fn only_the_first_waiter_of_the_queue_is_notified() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let owner = acquired(&locks, &name("r"), secs(60)).await;
    let [first, second] = [(); 2].map(|()| Holder::random());
    let mut wakeups = Vec::new();
    for waiter in [&first, &second] {
        busy(attempt(&locks, waiter, Order::Fair).await);
        wakeups.push(locks.subscribe(&name("r"), waiter, Order::Fair).await.unwrap());
    }
    assert!(release(&locks, &owner).await);
    timeout(NOTIFIED, wakeups[0].next()).await.expect("the first is notified");
    let early = timeout(Duration::from_millis(300), wakeups[1].next()).await;
    assert!(early.is_err(), "the second is not");
    // The first one leaves without having tried.
    assert!(locks.release(&name("r"), &first, None).await.unwrap());
    timeout(NOTIFIED, wakeups[1].next()).await.expect("then the second is");
    held(attempt(&locks, &second, Order::Fair).await);
}

#[tokio::test]
async fn waiter_that_leaves_the_middle_of_the_queue_holds_up_nobody() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let owner = acquired(&locks, &name("r"), secs(60)).await;
    let [middle, last] = [(); 2].map(|()| Holder::random());
    busy(attempt(&locks, &middle, Order::Fair).await);
    busy(attempt(&locks, &last, Order::Fair).await);
    let wakeups = locks.subscribe(&name("r"), &last, Order::Fair).await.unwrap();
    assert!(!locks.release(&name("r"), &middle, None).await.unwrap(), "it did not hold the lock");
    assert_eq!(busy(attempt(&locks, &last, Order::Fair).await).ahead, Some(0));
    assert!(release(&locks, &owner).await);
    timeout(NOTIFIED, wakeups.next()).await.expect("the last one is notified");
    held(attempt(&locks, &last, Order::Fair).await);
}

#[tokio::test]
async fn waiter_that_crashed_is_skipped_when_its_ttl_ends() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let owner = acquired(&locks, &name("r"), secs(60)).await;
    let [crashed, next] = [(); 2].map(|()| Holder::random());
    busy(locks.try_acquire(&name("r"), &crashed, secs(1), Order::Fair).await);
    busy(attempt(&locks, &next, Order::Fair).await);
    let wakeups = locks.subscribe(&name("r"), &next, Order::Fair).await.unwrap();
    assert!(release(&locks, &owner).await);
    timeout(NOTIFIED, wakeups.next()).await.expect("the next is notified");
    held(attempt(&locks, &next, Order::Fair).await);
}

/// Its ttl is ten minutes. The owner's ttl still is.
#[tokio::test]
async fn waiter_that_crashed_delays_nobody_for_its_ttl() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let long = secs(600);
    let owner = acquired(&locks, &name("r"), long).await;
    busy(locks.try_acquire(&name("r"), &Holder::random(), long, Order::Fair).await);
    assert!(release(&locks, &owner).await);
    let waiting = Locks::new(client(&zookeeper.url()));
    let lease = timeout(SOON, waiting.acquire(&name("r"), Terms::new(long).fair())).await;
    let lease = lease.expect("the crashed waiter is skipped").unwrap();
    let held = locks.status(&name("r")).await.unwrap().held.unwrap();
    assert!(held.remaining > Some(Duration::from_secs(590)), "{held:?}");
    lease.release().await.unwrap();
}

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
async fn waiter_outlives_its_ttl() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = Locks::new(client(&zookeeper.url()));
    let owner = locks.acquire(&name("r"), secs(60)).await.unwrap();
    let waiting = locks.clone();
    let waiter = tokio::spawn(async move {
        waiting.acquire(&name("r"), Terms::new(secs(1)).fair()).await.unwrap()
    });
    let backend = client(&zookeeper.url());
    let is_queued = async || Ok(backend.status(&name("r")).await?.queued == 1);
    until_async(SOON, is_queued).await.unwrap();
    let before = zookeeper.ephemeral_nodes().await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    // A place that was made anew would be another session's.
    assert_eq!(zookeeper.ephemeral_nodes().await.unwrap(), before, "it keeps its place");
    owner.release().await.unwrap();
    timeout(SOON, waiter).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn tries_that_fail_make_no_session() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let owner = acquired(&locks, &name("r"), secs(60)).await;
    let before = zookeeper.sessions(0).await.unwrap();
    assert_eq!(before.len(), 2, "the owner's, and the client's: {before:?}");
    for _ in 0..3 {
        busy(attempt(&locks, &Holder::random(), Order::Unordered).await);
    }
    assert_eq!(zookeeper.sessions(0).await.unwrap(), before);
    assert!(release(&locks, &owner).await);
    assert_eq!(zookeeper.sessions(0).await.unwrap().len(), 1);
}

/// So does its watch.
#[tokio::test]
async fn try_of_a_waiter_reads_one_place_until_that_is_gone() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    acquired(&locks, &name("r"), secs(60)).await;
    let waiters = [(); 40].map(|()| Holder::random());
    for waiter in &waiters {
        busy(attempt(&locks, waiter, Order::Fair).await);
    }
    let [.., before_last, last] = &waiters;
    let received = async || zookeeper.received(0).await.unwrap();
    let before = received().await;
    for _ in 0..3 {
        drop(locks.subscribe(&name("r"), last, Order::Fair).await.unwrap());
        assert_eq!(busy(attempt(&locks, last, Order::Fair).await).ahead, Some(39));
    }
    let requests = received().await - before;
    assert!(requests < 40, "with some pings: {requests}");
    assert!(!locks.release(&name("r"), before_last, None).await.unwrap());
    let before = received().await;
    assert_eq!(busy(attempt(&locks, last, Order::Fair).await).ahead, Some(38));
    let requests = received().await - before;
    assert!((40..60).contains(&requests), "one look at the whole queue: {requests}");
}

/// The queue is empty when the waiter looks, and is not when it queues.
#[tokio::test]
async fn waiter_that_was_overtaken_has_a_short_session_too() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let direct = client(&zookeeper.url());
    let first = acquired(&direct, &name("r"), secs(60)).await;
    assert!(release(&direct, &first).await);
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let (locks, waiter) = (client(&proxy.url("zookeeper")), Holder::random());
    let hold = proxy.hold("/holder-");
    let (tried, ()) = tokio::join!(attempt(&locks, &waiter, Order::Fair), async {
        let late = hold.caught().await.unwrap();
        acquired(&direct, &name("r"), secs(60)).await;
        late.deliver();
    });
    assert_eq!(busy(tried).ahead, Some(0));
    let node = format!("/fenced/queues/r/holder-{waiter}", waiter = waiter.as_str());
    let record = zookeeper.cli(&["get", &node]).await.unwrap();
    assert!(record.lines().any(|line| line.starts_with("15000 ")), "{record}");
}

/// Empty containers are deleted every half second, here in the midst of attempts.
#[tokio::test]
async fn container_that_is_deleted_during_an_attempt_is_made_again() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let (locks, begun) = (client(&zookeeper.url()), Instant::now());
    let mut last = None;
    while begun.elapsed() < Duration::from_secs(3) {
        let lock = acquired(&locks, &name("r"), secs(60)).await;
        assert!(last < Some(lock.token), "{last:?}, then {}", lock.token);
        last = Some(lock.token);
        assert!(release(&locks, &lock).await);
    }
    let queues = async || zookeeper.cli(&["ls", "/fenced/queues"]).await;
    let is_gone = async || Ok(queues().await?.lines().last() == Some("[]"));
    until_async(SOON, is_gone).await.unwrap();
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
        assert!(release(&locks, &owner).await);
        timeout(SOON, wakeups.next()).await.expect("the waiter is notified");
        let is_gone = async || {
            let queues = zookeeper.cli(&["ls", "/fenced/queues"]).await?;
            Ok(queues.lines().last() == Some("[]"))
        };
        until_async(SOON, is_gone).await.unwrap();
    }
}

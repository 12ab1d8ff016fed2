//! Waiters, in no order and in the queue.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fence::Holder;
use futures_util::future::join_all;
use lock_client::{
    Locks, Order, Terms,
    backend::{Attempt, Backend},
};
use testbed::wait::until_async;
use tokio::time::timeout;

use super::service::{SOON, Service, acquired, attempt, busy, held, release, secs};
use crate::names::name;

/// Sooner than a waiter tries without a notification.
const NOTIFIED: Duration = Duration::from_secs(4);

async fn twenty_tasks_in_both_orders_hold_the_lock_one_at_a_time<S: Service>() {
    let service = S::start().await;
    let (taken, tokens) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let tasks = (0..20).map(|number| {
        let locks = Locks::new(S::client(&service.url()));
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
async fn release_notifies_the_waiter<S: Service>() {
    let service = S::start().await;
    let (owner, other) = (S::client(&service.url()), S::client(&service.url()));
    for order in [Order::Fair, Order::Unordered] {
        let mut notified = 0;
        // On a busy machine, a try takes longer than all of the short delays.
        let longer = (0..10).map(|doublings| 40 << doublings);
        for (round, delay) in (0..20).chain(longer).map(Duration::from_millis).enumerate() {
            if round >= 20 && notified > 0 {
                break;
            }
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

async fn queue_is_served_in_its_order_and_nobody_overtakes_it<S: Service>() {
    let service = S::start().await;
    let locks = S::client(&service.url());
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

async fn only_the_first_waiter_of_the_queue_is_notified<S: Service>() {
    let service = S::start().await;
    let locks = S::client(&service.url());
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

async fn waiter_that_leaves_the_middle_of_the_queue_holds_up_nobody<S: Service>() {
    let service = S::start().await;
    let locks = S::client(&service.url());
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

/// Its turn is when the owner goes. Each other notification would cost a try.
async fn waiter_is_not_notified_when_another_before_it_leaves<S: Service>() {
    let service = S::start().await;
    let locks = S::client(&service.url());
    let owner = acquired(&locks, &name("r"), secs(60)).await;
    let [middle, last] = [(); 2].map(|()| Holder::random());
    busy(attempt(&locks, &middle, Order::Fair).await);
    busy(attempt(&locks, &last, Order::Fair).await);
    let wakeups = locks.subscribe(&name("r"), &last, Order::Fair).await.unwrap();
    assert!(!locks.release(&name("r"), &middle, None).await.unwrap());
    let early = timeout(Duration::from_millis(500), wakeups.next()).await;
    assert!(early.is_err(), "it is held");
    assert!(release(&locks, &owner).await);
    timeout(NOTIFIED, wakeups.next()).await.expect("the control: it is its turn");
    held(attempt(&locks, &last, Order::Fair).await);
}

async fn waiter_that_crashed_is_skipped_when_its_ttl_ends<S: Service>() {
    let service = S::start().await;
    let locks = S::client(&service.url());
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
async fn waiter_that_crashed_delays_nobody_for_its_ttl<S: Service>() {
    let service = S::start().await;
    let locks = S::client(&service.url());
    let long = secs(600);
    let owner = acquired(&locks, &name("r"), long).await;
    busy(locks.try_acquire(&name("r"), &Holder::random(), long, Order::Fair).await);
    assert!(release(&locks, &owner).await);
    let waiting = Locks::new(S::client(&service.url()));
    let lease = timeout(SOON, waiting.acquire(&name("r"), Terms::new(long).fair())).await;
    let lease = lease.expect("the crashed waiter is skipped").unwrap();
    let held = locks.status(&name("r")).await.unwrap().held.unwrap();
    assert!(held.remaining > Some(Duration::from_secs(590)), "{held:?}");
    lease.release().await.unwrap();
}

async fn waiter_outlives_its_ttl<S: Service>() {
    let service = S::start().await;
    let locks = Locks::new(S::client(&service.url()));
    let owner = locks.acquire(&name("r"), secs(60)).await.unwrap();
    let waiting = locks.clone();
    let waiter = tokio::spawn(async move {
        waiting.acquire(&name("r"), Terms::new(secs(1)).fair()).await.unwrap()
    });
    let backend = S::client(&service.url());
    let is_queued = async || Ok(backend.status(&name("r")).await?.queued == 1);
    until_async(SOON, is_queued).await.unwrap();
    let before = service.places().await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(service.places().await.unwrap(), before, "it keeps its place");
    owner.release().await.unwrap();
    timeout(SOON, waiter).await.unwrap().unwrap().release().await.unwrap();
}

test_each_service! {
    twenty_tasks_in_both_orders_hold_the_lock_one_at_a_time,
    release_notifies_the_waiter,
    queue_is_served_in_its_order_and_nobody_overtakes_it,
    only_the_first_waiter_of_the_queue_is_notified,
    waiter_that_leaves_the_middle_of_the_queue_holds_up_nobody,
    waiter_is_not_notified_when_another_before_it_leaves,
    waiter_that_crashed_is_skipped_when_its_ttl_ends,
    waiter_that_crashed_delays_nobody_for_its_ttl,
    waiter_outlives_its_ttl,
}

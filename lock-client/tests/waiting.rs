//! Waiting for a lock: in no order, or first come, first served.

use std::{
    future::poll_fn,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use fence::{Holder, Token};
use lock_client::{
    AcquireError, Locks, Order, Terms,
    backend::{self, Backend},
};
use testbed::{Redis, wait::until_async};
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    lock_service::{
        locks, redis_before, scripts_run, tried, ttl, unrenewed, until_listening, waiting,
    },
    names::name,
};

const SOON: Duration = Duration::from_secs(20);

pub(crate) fn fair() -> Terms {
    Terms::new(ttl(60_000)).fair()
}

/// The number of waiters in the queue of `r`.
pub(crate) async fn queued(redis: &Redis) -> u64 {
    redis.command(&["ZCARD", "fenced:{r}:queue"]).await.unwrap()
}

pub(crate) async fn until_queued(redis: &Redis, count: u64) {
    until_async(SOON, async || Ok(queued(redis).await == count)).await.unwrap();
}

/// A waiter that sends its number and token when it has acquired the lock, and releases it.
pub(crate) fn waiter(
    locks: &Locks,
    number: usize,
    terms: Terms,
    sender: mpsc::UnboundedSender<(usize, Token)>,
) -> JoinHandle<()> {
    let locks = locks.clone();
    tokio::spawn(async move {
        let lease = locks.acquire(&name("r"), terms).await.unwrap();
        sender.send((number, lease.token().unwrap())).unwrap();
        lease.release().await.unwrap();
    })
}

#[tokio::test]
async fn waiters_in_no_order_are_woken_by_the_release() {
    let redis = Redis::start().await.unwrap();
    let (holder, others) = (locks(&redis.url()), locks(&redis.url()));
    let lease = holder.acquire(&name("r"), ttl(600_000)).await.unwrap();
    let (sender, mut acquired) = mpsc::unbounded_channel();
    let scripts_before = scripts_run(&redis).await;
    for (number, locks) in [&others, &others, &holder].into_iter().enumerate() {
        waiter(locks, number, ttl(600_000).into(), sender.clone());
    }
    // Each waiter tries, and the first of each client once more when it listens.
    let all_wait = async || Ok(scripts_run(&redis).await == scripts_before + 5);
    until_async(Duration::from_secs(20), all_wait).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    assert_eq!(scripts_run(&redis).await, scripts_before + 5, "nobody polls");
    let mut last = lease.token().unwrap();
    lease.release().await.unwrap();
    for _ in 0..3 {
        // Long before the ttl ends, or before they try by themselves.
        let (_, token) = timeout(Duration::from_secs(4), acquired.recv()).await.unwrap().unwrap();
        assert!(token > last);
        last = token;
    }
    until_listening(&redis, 0).await;
}

/// A waiter in the queue tries every second: only a shorter time shows that it was notified.
#[tokio::test]
async fn first_in_the_queue_is_woken_by_the_release() {
    let redis = redis_before(33).await;
    let (holder, other) = (locks(&redis.url()), locks(&redis.url()));
    let mut shortest = Duration::MAX;
    for _ in 0..5 {
        let lease = holder.acquire(&name("r"), ttl(600_000)).await.unwrap();
        let waiter = waiting(&redis, &other, fair()).await;
        let begun = Instant::now();
        lease.release().await.unwrap();
        let next = waiter.await.unwrap().unwrap();
        shortest = shortest.min(begun.elapsed());
        next.release().await.unwrap();
        until_listening(&redis, 0).await;
    }
    assert!(shortest < Duration::from_millis(500), "{shortest:?}");
}

#[tokio::test]
async fn fair_waiters_acquire_in_the_order_of_their_arrival_with_growing_tokens() {
    let redis = Redis::start().await.unwrap();
    let lease = locks(&redis.url()).acquire(&name("r"), ttl(60_000)).await.unwrap();
    let (sender, mut acquired) = mpsc::unbounded_channel();
    // With one client, and with several.
    let shared = locks(&redis.url());
    for number in 0..10 {
        let locks = if number % 2 == 0 { shared.clone() } else { locks(&redis.url()) };
        waiter(&locks, number, fair(), sender.clone());
        until_queued(&redis, number as u64 + 1).await;
    }
    let mut last = lease.token().unwrap();
    lease.release().await.unwrap();
    for number in 0..10 {
        let (came, token) = timeout(SOON, acquired.recv()).await.unwrap().unwrap();
        assert_eq!(came, number);
        assert!(token > last, "the token still grows");
        last = token;
    }
    until_queued(&redis, 0).await;
    until_listening(&redis, 0).await;
}

/// Prevents the next request from removing a waiter that has sent nothing for too long.
async fn keep_alive(redis: &Redis, waiter: &Holder) {
    let alive_until = ["ZADD", "fenced:{r}:queue:alive", "9999999999999", waiter.as_str()];
    redis.command::<u64>(&alive_until).await.unwrap();
}

#[tokio::test]
async fn only_the_next_in_the_queue_is_woken() {
    let redis = Redis::start().await.unwrap();
    let lease = locks(&redis.url()).acquire(&name("r"), ttl(60_000)).await.unwrap();
    let subscribe = |order| {
        let url = redis.url();
        async move {
            let backend = lock_client::redis::Redis::open(&url).unwrap();
            let mut wakeups = Vec::new();
            for _ in 0..3 {
                let holder = Holder::random();
                if order == Order::Fair {
                    let _ = backend.try_acquire(&name("r"), &holder, ttl(60_000), order).await;
                }
                wakeups
                    .push((backend.subscribe(&name("r"), &holder, order).await.unwrap(), holder));
            }
            (backend, wakeups)
        }
    };
    let (_, unordered) = subscribe(Order::Unordered).await;
    let (backend, in_queue) = subscribe(Order::Fair).await;
    for (_, holder) in &in_queue {
        keep_alive(&redis, holder).await;
    }
    lease.release().await.unwrap();
    timeout(SOON, in_queue[0].0.next()).await.expect("the first of the queue is woken");
    // Messages arrive in order: the release's other messages have arrived when the next waiter's
    // has.
    for (wakeups, _) in in_queue[1..].iter().chain(&unordered) {
        let woken = timeout(Duration::from_millis(50), wakeups.next()).await;
        assert!(woken.is_err(), "no other waiter is notified");
    }
    for (_, holder) in &in_queue {
        backend.release(&name("r"), holder, None).await.unwrap();
    }
    // The queue is empty and the lock is free: all unordered waiters are notified.
    for (wakeups, _) in &unordered {
        timeout(SOON, wakeups.next()).await.expect("all are woken at once");
    }
}

#[tokio::test]
async fn nobody_gets_past_the_queue() {
    let redis = Redis::start().await.unwrap();
    let backend = lock_client::redis::Redis::open(&redis.url()).unwrap();
    let (first, second) = (Holder::random(), Holder::random());
    let lease = locks(&redis.url()).acquire(&name("r"), ttl(60_000)).await.unwrap();
    let fair_try = async |holder: &Holder| {
        backend.try_acquire(&name("r"), holder, ttl(60_000), Order::Fair).await.unwrap()
    };
    assert!(matches!(fair_try(&first).await, backend::Attempt::Busy { .. }));
    assert!(matches!(fair_try(&second).await, backend::Attempt::Busy { .. }));
    keep_alive(&redis, &first).await;
    lease.release().await.unwrap();
    keep_alive(&redis, &first).await;
    let barging = locks(&redis.url()).acquire(&name("r"), tried(1_000)).await;
    assert!(matches!(barging, Err(AcquireError::Contended { .. })), "{barging:?}");
    keep_alive(&redis, &first).await;
    assert!(matches!(fair_try(&second).await, backend::Attempt::Busy { .. }));
    assert!(matches!(fair_try(&first).await, backend::Attempt::Granted { .. }));
}

#[tokio::test]
async fn waiter_that_gives_up_leaves_nothing_behind() {
    let redis = Redis::start().await.unwrap();
    let (held, waiting) = (locks(&redis.url()), locks(&redis.url()));
    let lease = held.acquire(&name("r"), ttl(60_000)).await.unwrap();
    for terms in [fair(), ttl(60_000).into()] {
        // Its wait ends.
        let gave_up =
            waiting.acquire(&name("r"), terms.wait(Duration::from_millis(50))).await.unwrap_err();
        assert!(matches!(gave_up, AcquireError::Contended { remaining: Some(_), .. }), "{gave_up}");
        assert_eq!(queued(&redis).await, 0);
        // Its future is dropped, while it waits.
        let dropped = waiting.clone();
        let waiter = tokio::spawn(async move { dropped.acquire(&name("r"), terms).await });
        until_listening(&redis, 1).await;
        waiter.abort();
        until_queued(&redis, 0).await;
        until_listening(&redis, 0).await;
    }
    lease.release().await.unwrap();
    // Its future is dropped when it may just have acquired the lock: after any number of its steps.
    for polls in 1..60 {
        for terms in [fair(), ttl(60_000).into()] {
            let name = name("r");
            let mut acquire = Box::pin(waiting.acquire(&name, terms));
            for _ in 0..polls {
                let polled = poll_fn(|context| Poll::Ready(acquire.as_mut().poll(context))).await;
                if polled.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(acquire);
            let next = held.acquire(&name, Terms::new(ttl(60_000)).wait(SOON)).await;
            next.expect("the lock is free again, long before the ttl").release().await.unwrap();
        }
    }
    until_queued(&redis, 0).await;
}

#[tokio::test]
async fn lock_whose_owner_vanished_is_acquired_when_its_ttl_ends() {
    let redis = Redis::start().await.unwrap();
    for terms in [fair(), ttl(60_000).into()] {
        let lease = locks(&redis.url()).acquire(&name("r"), unrenewed(700)).await.unwrap();
        lease.detach().unwrap();
        let waited = locks(&redis.url()).acquire(&name("r"), terms.wait(SOON)).await.unwrap();
        waited.release().await.unwrap();
    }
}

#[tokio::test]
async fn many_waiters_of_many_clients_get_the_lock_one_at_a_time() {
    let redis = Redis::start().await.unwrap();
    let clients: Vec<_> = (0..4).map(|_| locks(&redis.url())).collect();
    let inside = Arc::new(Mutex::new(()));
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..80)
        .map(|number| {
            let (locks, inside, tokens) =
                (clients[number % 4].clone(), inside.clone(), tokens.clone());
            let terms = if number % 3 == 0 { fair() } else { ttl(60_000).into() };
            tokio::spawn(async move {
                for _ in 0..5 {
                    let lease = locks.acquire(&name("r"), terms).await.unwrap();
                    let alone = inside.try_lock().expect("nobody else is inside");
                    tokens.lock().await.push(lease.token().unwrap());
                    tokio::task::yield_now().await;
                    drop(alone);
                    lease.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        timeout(Duration::from_secs(60), task).await.expect("nobody waits for ever").unwrap();
    }
    let tokens = tokens.lock().await;
    assert_eq!(tokens.len(), 400);
    assert!(tokens.is_sorted_by(|a, b| a < b), "tokens grow in the order of the grants");
    until_listening(&redis, 0).await;
}

//! Waiters in the queue that send nothing: because they crashed, or because they need not.

use std::time::Duration;

use fence::Holder;
use lock_client::{
    Order,
    backend::{Attempt, Backend},
};
use testbed::{Redis, wait::until_async};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use crate::{
    lock_service::{locks, scripts_run, ttl, unrenewed, until_listening},
    names::name,
    waiting::{fair, until_queued, waiter},
};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn crashed_waiter_is_skipped() {
    assert_skipped(async |_, _| ()).await;
}

#[tokio::test]
async fn crashed_waiter_is_skipped_though_the_clock_went_back() {
    assert_skipped(async |redis, crashed| {
        let alive_until = ["ZADD", "fenced:{r}:queue:alive", "9999999999999", crashed.as_str()];
        let _: u64 = redis.command(&alive_until).await.unwrap();
    })
    .await;
}

/// Adds a waiter to the queue that is silent from then on, and lets another one follow it.
async fn assert_skipped(meanwhile: impl AsyncFn(&Redis, &Holder)) {
    let redis = Redis::start().await.unwrap();
    let lease = locks(&redis.url()).acquire(&name("r"), ttl(600_000)).await.unwrap();
    let crashed = Holder::random();
    let backend = lock_client::redis::Redis::open(&redis.url()).unwrap();
    let _ = backend.try_acquire(&name("r"), &crashed, ttl(600_000), Order::Fair).await.unwrap();
    meanwhile(&redis, &crashed).await;
    let (sender, mut acquired) = mpsc::unbounded_channel();
    waiter(&locks(&redis.url()), 1, fair(), sender);
    until_queued(&redis, 2).await;
    lease.release().await.unwrap();
    timeout(SOON, acquired.recv())
        .await
        .expect("the next has it, long before a ttl is over")
        .unwrap();
}

/// Waiters that crash together are the first of the queue, or are all that wait.
#[tokio::test]
async fn crowd_of_crashed_waiters_is_skipped() {
    let redis = Redis::start().await.unwrap();
    let lease = locks(&redis.url()).acquire(&name("r"), ttl(600_000)).await.unwrap();
    let backend = lock_client::redis::Redis::open(&redis.url()).unwrap();
    for _ in 0..10 {
        let crashed = Holder::random();
        let _ = backend.try_acquire(&name("r"), &crashed, ttl(600_000), Order::Fair).await.unwrap();
    }
    let (sender, mut acquired) = mpsc::unbounded_channel();
    waiter(&locks(&redis.url()), 1, fair(), sender);
    until_queued(&redis, 11).await;
    lease.release().await.unwrap();
    timeout(SOON, acquired.recv()).await.expect("it is not kept out by the dead").unwrap();
}

/// The holder crashes with the waiters near the head: no release asks the others.
#[tokio::test]
async fn holder_that_crashes_with_the_first_waiters_keeps_nobody_out_for_long() {
    let redis = Redis::start().await.unwrap();
    let lease = locks(&redis.url()).acquire(&name("r"), unrenewed(2_000)).await.unwrap();
    lease.detach().unwrap();
    let backend = lock_client::redis::Redis::open(&redis.url()).unwrap();
    for _ in 0..30 {
        let crashed = Holder::random();
        let _ = backend.try_acquire(&name("r"), &crashed, ttl(600_000), Order::Fair).await.unwrap();
    }
    let (sender, mut acquired) = mpsc::unbounded_channel();
    waiter(&locks(&redis.url()), 1, fair(), sender);
    timeout(SOON, acquired.recv()).await.expect("the dead are found out").unwrap();
}

#[tokio::test]
async fn redis_that_is_full_releases_a_lock_for_which_others_wait() {
    let redis = Redis::start_with(&["--maxmemory-policy", "noeviction"]).await.unwrap();
    let holder = locks(&redis.url());
    let lease = holder.acquire(&name("r"), ttl(60_000)).await.unwrap();
    let backend = lock_client::redis::Redis::open(&redis.url()).unwrap();
    let waits = Holder::random();
    let _ = backend.try_acquire(&name("r"), &waits, ttl(60_000), Order::Fair).await.unwrap();
    let _: String = redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    lease.release().await.expect("a release needs no memory");
    let _: String = redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    assert_eq!(holder.status(&name("r")).await.unwrap().held, None);
}

/// A holder in the queue tries, and sleeps for as long as it may.
async fn nap_of(backend: &lock_client::redis::Redis, holder: &Holder) -> Duration {
    match backend.try_acquire(&name("r"), holder, ttl(60_000), Order::Fair).await.unwrap() {
        Attempt::Busy(contention) => contention.nap.expect("it is in the queue"),
        granted @ Attempt::Granted { .. } => panic!("{granted:?}"),
    }
}

/// Those before it have gone, and all others have crashed.
#[tokio::test]
async fn queue_exists_until_the_last_waiter_has_slept() {
    let redis = Redis::start().await.unwrap();
    let backend = lock_client::redis::Redis::open(&redis.url()).unwrap();
    let _lease = locks(&redis.url()).acquire(&name("r"), ttl(600_000)).await.unwrap();
    let waiters: Vec<_> = (0..1_000).map(|_| Holder::random()).collect();
    let mut longest = Duration::ZERO;
    for waiter in &waiters {
        longest = longest.max(nap_of(&backend, waiter).await);
    }
    assert!(longest <= Duration::from_secs(60), "{longest:?}");
    for gone in &waiters[..996] {
        backend.release(&name("r"), gone, None).await.unwrap();
    }
    assert!(nap_of(&backend, &waiters[996]).await <= Duration::from_secs(1));
    let exists_ms: u64 = redis.command(&["PTTL", "fenced:{r}:queue"]).await.unwrap();
    assert!(Duration::from_millis(exists_ms) > longest + Duration::from_secs(60));
}

/// The waiter that comes near the head must show that it is alive, although nobody has died.
#[tokio::test]
async fn grant_asks_the_next_waiter_near_the_head() {
    let redis = Redis::start().await.unwrap();
    let backend = lock_client::redis::Redis::open(&redis.url()).unwrap();
    let lease = locks(&redis.url()).acquire(&name("r"), ttl(600_000)).await.unwrap();
    let waiters: Vec<_> = (0..5).map(|_| Holder::random()).collect();
    for waiter in &waiters {
        nap_of(&backend, waiter).await;
    }
    lease.release().await.unwrap();
    let granted =
        backend.try_acquire(&name("r"), &waiters[0], ttl(60_000), Order::Fair).await.unwrap();
    assert!(matches!(granted, Attempt::Granted { .. }));
    let mut asked: Vec<String> =
        redis.command(&["ZRANGE", "fenced:{r}:queue:alive", "0", "-1"]).await.unwrap();
    let mut near: Vec<_> = waiters[1..4].iter().map(|waiter| waiter.as_str().to_owned()).collect();
    asked.sort();
    near.sort();
    assert_eq!(asked, near);
}

/// Only the waiters near the head show every second that they are alive.
#[tokio::test]
async fn fair_waiters_that_idle_try_rarely() {
    let redis = Redis::start().await.unwrap();
    let lease = locks(&redis.url()).acquire(&name("r"), ttl(600_000)).await.unwrap();
    let waiting = locks(&redis.url());
    let (sender, _acquired) = mpsc::unbounded_channel();
    let mut waiters = 0;
    for (count, most_per_second) in [(20_usize, 12.0), (500, 30.0)] {
        let start = scripts_run(&redis).await;
        for number in waiters..count {
            waiter(&waiting, number, fair(), sender.clone());
        }
        waiters = count;
        until_queued(&redis, count as u64).await;
        until_listening(&redis, count).await;
        // Those that have just come try once more.
        let have_tried = async || Ok(scripts_run(&redis).await >= start + 2 * count as u64);
        until_async(SOON, have_tried).await.unwrap();
        let begun = Instant::now();
        let before = scripts_run(&redis).await;
        sleep(Duration::from_secs(5)).await;
        let tries = scripts_run(&redis).await - before;
        let most = (most_per_second * begun.elapsed().as_secs_f64()) as u64;
        assert!((10..most).contains(&tries), "{count} waiters tried {tries} times, not {most}");
    }
    lease.release().await.unwrap();
}

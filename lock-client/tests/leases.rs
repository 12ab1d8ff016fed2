//! Leases: renewal, end, and what clones share.

use std::time::{Duration, Instant};

use lock_client::{AcquireError, DetachError, Lease, Locks, Released, RenewError, Terms};
use testbed::{
    Redis,
    proxy::Proxy,
    wait::{until, until_async},
};
use tokio::time::{sleep, timeout};

use crate::{
    lock_service::{lasting, locks, redis_before, tried, ttl, unrenewed, until_free},
    names::{name, token},
};

const SOON: Duration = Duration::from_secs(20);

async fn until_passed(lease: &Lease, time: Duration) {
    // Only the passing of time shows that something does not happen.
    sleep(time).await;
    assert!(lease.token().is_ok(), "it is still held");
}

#[tokio::test]
async fn lease_renews_itself_as_long_as_it_lives_and_no_longer() {
    let redis = Redis::start().await.unwrap();
    let (ours, others) = (locks(&redis.url()), locks(&redis.url()));
    let lease = ours.acquire(&name("r"), tried(5_000).detachable()).await.unwrap();
    let first_token = lease.token();
    until_passed(&lease, Duration::from_secs(10)).await;
    let busy = others.acquire(&name("r"), tried(1_000)).await;
    assert!(matches!(busy, Err(AcquireError::Contended { .. })), "{busy:?}");
    assert_eq!(lease.token(), first_token);
    // The lease is forgotten, not released: a task that outlived it would keep the lock.
    lease.detach().unwrap();
    let next = others.acquire(&name("r"), Terms::new(ttl(1_000)).wait(SOON)).await;
    next.expect("nobody renews it any more").release().await.unwrap();
}

#[tokio::test]
async fn lease_without_renewal_ends_with_its_ttl() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    let lease = locks.acquire(&name("r"), unrenewed(300)).await.unwrap();
    timeout(SOON, lease.lost()).await.expect("it is lost in time");
    assert!(lease.token().is_err());
    until_free(&redis).await;
}

/// The clock of Redis may run faster than the client's by the drift, which is 6 s here.
#[tokio::test]
async fn deadline_is_earlier_than_the_end_of_the_ttl_in_redis_by_the_drift() {
    // An answer may be late by this much on a busy machine.
    const LATE: Duration = Duration::from_secs(3);
    let ttl = ttl(600_000);
    let drift = ttl.as_duration() - ttl.reliable();
    assert!(drift > 2 * LATE);
    let redis = Redis::start().await.unwrap();
    // At the earliest: Redis answered later than it was asked.
    let end_in_redis = async || {
        let asked = Instant::now();
        asked + Duration::from_millis(redis.command(&["PTTL", "fenced:{r}:lock"]).await.unwrap())
    };
    let asked = Instant::now();
    let lease = locks(&redis.url()).acquire(&name("r"), ttl).await.unwrap();
    let without_drift = asked + ttl.as_duration();
    assert!(Instant::now() + lease.remaining() <= end_in_redis().await - (drift - LATE));
    assert!(without_drift > end_in_redis().await - (drift - LATE), "the control");

    let asked = Instant::now();
    lease.renew().await.unwrap();
    let without_drift = asked + ttl.as_duration();
    assert!(Instant::now() + lease.remaining() <= end_in_redis().await - (drift - LATE));
    assert!(without_drift > end_in_redis().await - (drift - LATE), "the control");
}

#[tokio::test]
async fn lease_is_held_no_longer_than_its_cap() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    // The first is renewed for its rest. The second is not renewed.
    for (cap, ttl_ms) in [(10_000, 8_000), (200, 600_000)] {
        let cap = Duration::from_millis(cap);
        let terms = Terms::new(ttl(ttl_ms)).max_hold(cap);
        let begun = Instant::now();
        let lease = locks.acquire(&name("r"), terms).await.unwrap();
        assert!(lease.remaining() <= cap);
        timeout(SOON, lease.lost()).await.expect("it is lost at its cap");
        assert!(begun.elapsed() > cap * 9 / 10, "and not much earlier");
        until_free(&redis).await;
    }
}

/// Suspends the machine, as far as this runtime can see: its timers stand still.
fn suspend(time: Duration) {
    tokio::time::pause();
    std::thread::sleep(time);
    tokio::time::resume();
}

#[tokio::test]
async fn lease_is_renewed_at_once_after_a_suspension() {
    let redis = Redis::start().await.unwrap();
    let lease = locks(&redis.url()).acquire(&name("r"), ttl(12_000)).await.unwrap();
    // The renewal begins to wait: for at least 3.6 seconds.
    until_passed(&lease, Duration::from_millis(100)).await;
    suspend(Duration::from_secs(5));
    let left = lease.remaining();
    assert!(!left.is_zero(), "it is still held");
    let renewed = until(SOON, || Ok(lease.remaining() > left));
    let first_timer = Duration::from_secs(3);
    timeout(first_timer, renewed).await.expect("it does not wait for its first timer").unwrap();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn lease_that_expired_during_a_suspension_is_lost_at_once() {
    let redis = Redis::start().await.unwrap();
    let lease = locks(&redis.url()).acquire(&name("r"), unrenewed(4_000)).await.unwrap();
    let lost = tokio::spawn(lease.lost());
    until_passed(&lease, Duration::from_millis(100)).await;
    suspend(Duration::from_secs(4));
    let first_timer = Duration::from_secs(3);
    timeout(first_timer, lost).await.expect("it does not wait for its first timer").unwrap();
}

#[tokio::test]
async fn cap_holds_when_a_renewal_comes_late_and_when_a_lease_is_adopted() {
    let mut redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    let cap = Duration::from_millis(3_500);
    let begun = std::time::Instant::now();
    let terms = Terms::new(ttl(3_000)).max_hold(cap).no_wait();
    let lease = locks.acquire(&name("r"), terms).await.unwrap();
    redis.process().pause().await.unwrap();
    // The renewal of the first second arrives after the second.
    sleep(Duration::from_secs(2)).await;
    redis.process().resume().unwrap();
    while lease.token().is_ok() {
        let elapsed = begun.elapsed();
        assert!(elapsed + lease.remaining() < cap + Duration::from_millis(500));
        sleep(Duration::from_millis(10)).await;
    }

    let detached = locks.acquire(&name("other"), lasting()).await.unwrap().detach().unwrap();
    let adopted = locks.adopt(detached, Terms::new(ttl(60_000)).max_hold(cap)).await.unwrap();
    assert!(adopted.remaining() <= cap);
}

#[tokio::test]
async fn cap_holds_when_a_renewal_waits_for_a_reissue() {
    let redis = redis_before(33).await;
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    let service = lock_client::redis::Redis::open(&proxy.url("redis")).unwrap();
    let locks = Locks::new(service.answer_within(SOON));
    let (ttl, cap) = (ttl(6_000), Duration::from_secs(7));
    let begun = Instant::now();
    let lease = locks.acquire(&name("r"), Terms::new(ttl).max_hold(cap)).await.unwrap();
    let first_end = begun.elapsed() + lease.remaining();
    let rest = cap - ttl.reliable();
    let held = proxy.hold("fenced:{r}:lock");
    let deliver = async {
        let reissue = held.caught().await.unwrap();
        // The renewal is due after two seconds. It waits for another one.
        until(SOON, || Ok(lease.remaining() < Duration::from_secs(3))).await.unwrap();
        reissue.deliver();
    };
    tokio::join!(lease.reissue(lease.token().unwrap()), deliver).0.unwrap();
    let is_renewed = || Ok(begun.elapsed() + lease.remaining() > first_end + rest / 2);
    until(SOON, is_renewed).await.expect("it is renewed");
    let (end, capped) = (begun.elapsed() + lease.remaining(), first_end + rest);
    assert!(end < capped + Duration::from_millis(500), "{end:?}, and not {capped:?}");
}

#[tokio::test]
async fn lock_that_another_client_acquired_is_lost_and_not_taken_back() {
    let redis = Redis::start().await.unwrap();
    let (ours, others) = (locks(&redis.url()), locks(&redis.url()));
    let lease = ours.acquire(&name("r"), Terms::new(ttl(6_000))).await.unwrap();
    let _: i64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
    let other = others.acquire(&name("r"), tried(60_000)).await.unwrap();
    // The next renewal finds it, and so before the ttl ends.
    timeout(Duration::from_secs(5), lease.lost()).await.expect("a renewal tells");
    assert!(lease.token().is_err(), "and never the successor's token");
    assert!(matches!(lease.renew().await, Err(RenewError::Lost(_))));
    assert_eq!(lease.release().await.unwrap(), Released::NotHeld);
    let held = ours.status(&name("r")).await.unwrap().held.unwrap();
    assert_eq!(Ok(held.token), other.token(), "the other client's lock is unchanged");
}

#[tokio::test]
async fn renewal_that_comes_too_late_does_not_take_the_lock_back() {
    let mut redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    // The first renewal comes long after the pause.
    let lease = locks.acquire(&name("r"), Terms::new(ttl(12_000))).await.unwrap();
    let token_before = lease.token().unwrap();
    // The lock never expires in Redis, so only the lease's own deadline can make it lost.
    let _: i64 = redis.command(&["PERSIST", "fenced:{r}:lock"]).await.unwrap();
    redis.process().pause().await.unwrap();
    timeout(SOON, lease.lost()).await.expect("it is past its deadline");
    redis.process().resume().unwrap();
    // Redis answers in order: by now, the renewal was answered too.
    let held = locks.status(&name("r")).await.unwrap().held.unwrap();
    assert!(lease.token().is_err());
    assert!(matches!(lease.renew().await, Err(RenewError::Lost(_))));
    assert_eq!(held.token, token_before, "Redis would have renewed it");
    drop(lease);
    until_free(&redis).await;
}

#[tokio::test]
async fn renewal_survives_a_redis_that_is_away_for_less_than_the_ttl() {
    let mut redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    let lease = locks.acquire(&name("r"), Terms::new(ttl(6_000))).await.unwrap();
    redis.process().pause().await.unwrap();
    let missed = || Ok(lease.remaining() < Duration::from_millis(3_500));
    until(SOON, missed).await.unwrap();
    redis.process().resume().unwrap();
    let renewed = || Ok(lease.remaining() > Duration::from_millis(4_500));
    until(SOON, renewed).await.expect("it is renewed again");
}

#[tokio::test]
async fn lock_is_released_with_the_last_clone() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    let lease = locks.acquire(&name("r"), ttl(60_000)).await.unwrap();
    let clone = lease.clone();
    let lost = lease.lost();
    assert_eq!(clone.token(), lease.token());
    assert_eq!(lease.release().await.unwrap(), Released::StillHeld);
    assert!(clone.token().is_ok());
    let busy = locks.acquire(&name("r"), tried(1_000)).await;
    assert!(matches!(busy, Err(AcquireError::Contended { .. })), "{busy:?}");
    drop(clone);
    timeout(SOON, lost).await.expect("a lease that is released is over");
    until_free(&redis).await;
}

#[tokio::test]
async fn detached_lock_is_adopted_by_another_client() {
    let redis = Redis::start().await.unwrap();
    let (first, second) = (locks(&redis.url()), locks(&redis.url()));
    let lease = first.acquire(&name("r"), lasting()).await.unwrap();
    let token = lease.token();
    let clone = lease.clone();
    assert_eq!(lease.detach(), Err(DetachError::Shared { lock: name("r") }), "a clone keeps it");
    let detached = clone.detach().unwrap();
    let adopted = second.adopt(detached.clone(), ttl(60_000)).await.unwrap();
    assert_eq!(adopted.token(), token);
    assert_eq!(adopted.release().await.unwrap(), Released::Released);
    let gone = second.adopt(detached, ttl(60_000)).await;
    assert!(matches!(gone, Err(RenewError::Lost(_))), "{gone:?}");
}

#[tokio::test]
async fn lock_is_detached_only_if_its_terms_said_so() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    let lease = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    let error = lease.detach().unwrap_err();
    assert_eq!(error, DetachError::NotDetachable { lock: name("r") });
    assert!(error.to_string().contains("acquire it with `Terms::detachable`"), "{error}");
    until_free(&redis).await;
    // An adopted lock may be left to yet another process.
    let detached = locks.acquire(&name("r"), lasting()).await.unwrap().detach().unwrap();
    let adopted = locks.adopt(detached, tried(60_000)).await.unwrap();
    adopted.detach().unwrap();
}

#[tokio::test]
async fn counter_is_kept_for_the_retention() {
    let redis = Redis::start().await.unwrap();
    let retention = Duration::from_millis(400);
    let backend = lock_client::redis::Redis::open(&redis.url()).unwrap();
    let forgetting = Locks::new(backend.clone().keep_counters_for(retention));
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let lease = forgetting.acquire(&name("r"), ttl(5_000)).await.unwrap();
    assert_eq!(lease.token(), Ok(token(33)));
    // While it is held, renewals keep the counter.
    until_passed(&lease, Duration::from_secs(8)).await;
    let counter: Option<u64> = redis.command(&["GET", "fenced:{r}:token"]).await.unwrap();
    assert_eq!(counter, Some(33));
    lease.release().await.unwrap();
    let gone = async || Ok(!redis.command::<bool>(&["EXISTS", "fenced:{r}:token"]).await?);
    until_async(SOON, gone).await.unwrap();
    let lease = forgetting.acquire(&name("r"), ttl(5_000)).await.unwrap();
    assert!(lease.token().unwrap() > token(1_000_000_000_000), "it starts at the clock");

    // A client without a retention leaves the retention of another as it is.
    let remembering = Locks::new(backend.keep_counters_for(Duration::from_secs(60)));
    let lease = remembering.acquire(&name("kept"), ttl(300)).await.unwrap();
    lease.release().await.unwrap();
    let keeping = locks(&redis.url());
    keeping.acquire(&name("kept"), ttl(300)).await.unwrap().release().await.unwrap();
    let ttl_ms: i64 = redis.command(&["PTTL", "fenced:{kept}:token"]).await.unwrap();
    assert!(ttl_ms > 0, "{ttl_ms}");
    redis.set("fenced:{other}:token", "32").await.unwrap();
    keeping.acquire(&name("other"), ttl(300)).await.unwrap().release().await.unwrap();
    let ttl_ms: i64 = redis.command(&["PTTL", "fenced:{other}:token"]).await.unwrap();
    assert_eq!(ttl_ms, -1);
}

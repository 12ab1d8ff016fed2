//! Bugs that were seen in other lock clients.

use std::time::{Duration, Instant};

use lock_client::{
    AcquireError, Lease, Released, RenewError, Terms, Ttl,
    backend::{Backend, Ownership},
};
use testbed::{Redis, wait::until_async};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    lock_service::{
        impatient_locks, lasting, locks, redis_before, scripts_run, ttl, unrenewed, waiting,
    },
    names::{name, token},
};
use testbed::{Proxy, proxy::LateRequest};

const PATIENCE: Duration = Duration::from_secs(30);
const LOCK: &str = "fenced:{r}:lock";

async fn counter(redis: &Redis) -> u64 {
    redis.command(&["GET", "fenced:{r}:token"]).await.unwrap()
}

async fn expire(redis: &Redis) {
    assert_eq!(redis.command::<u64>(&["DEL", LOCK]).await.unwrap(), 1);
}

/// Redisson's RFencedLock increments the token.
#[tokio::test]
async fn reentrant_acquire_does_not_move_the_token() {
    let redis = redis_before(33).await;
    let lease = locks(&redis.url()).acquire(&name("r"), unrenewed(60_000)).await.unwrap();
    let again = lease.acquire(&name("r"), unrenewed(60_000)).await.unwrap();
    let thrice = again.acquire(&name("r"), unrenewed(60_000)).await.unwrap();
    for clone in [&lease, &again, &thrice] {
        assert_eq!((clone.token(), clone.holder()), (Ok(token(33)), lease.holder()));
    }
    assert_eq!(counter(&redis).await, 33);
    assert_eq!(thrice.release().await.unwrap(), Released::StillHeld);
    assert_eq!(again.release().await.unwrap(), Released::StillHeld);
    assert_eq!(lease.token(), Ok(token(33)));
    assert_eq!(lease.release().await.unwrap(), Released::Released);
}

/// rslock's `acquire` loops for ever, once Redis is down.
#[tokio::test]
async fn waiter_of_a_redis_that_dies_ends_with_a_clear_error() {
    let unlimited = Terms::new(ttl(600_000));
    let limited = unlimited.wait(Duration::from_secs(5));
    let mut waiters = JoinSet::new();
    for (terms, at_most) in [
        // It may sleep for 5 seconds before it tries, and then tries for 10.
        (unlimited, Duration::from_secs(25)),
        (unlimited.fair(), Duration::from_secs(25)),
        (limited, Duration::from_secs(20)),
        (limited.fair(), Duration::from_secs(20)),
    ] {
        waiters.spawn(async move {
            let mut redis = redis_before(33).await;
            let locks = impatient_locks(&redis.url());
            let _other = locks.acquire(&name("r"), lasting()).await.unwrap();
            let first = waiting(&redis, &locks, terms).await;
            // Other waiters of its process wait behind it.
            let mut all = JoinSet::from_iter([async { first.await.unwrap() }]);
            let tries = scripts_run(&redis).await;
            for _ in 0..3 {
                let locks = locks.clone();
                all.spawn(async move { locks.acquire(&name("r"), terms).await });
            }
            let wait = async || Ok(scripts_run(&redis).await >= tries + 3);
            until_async(PATIENCE, wait).await.unwrap();
            redis.process().kill().unwrap();
            for outcome in timeout(at_most, all.join_all()).await.expect("they end") {
                assert!(matches!(outcome, Err(AcquireError::Unavailable { .. })), "{outcome:?}");
            }
        });
    }
    waiters.join_all().await;
}

/// Another crate tries once, however long it may wait.
#[tokio::test]
async fn acquire_with_a_wait_tries_until_the_lock_is_free() {
    let in_no_order = unrenewed(60_000).wait(PATIENCE);
    for terms in [in_no_order, in_no_order.fair()] {
        let redis = redis_before(33).await;
        let locks = locks(&redis.url());
        let first = locks.acquire(&name("r"), lasting()).await.unwrap();
        let waiter = waiting(&redis, &locks, terms).await;
        first.release().await.unwrap();
        let second = waiter.await.unwrap().expect("it tries again");
        assert_eq!(second.token(), Ok(token(34)));
        second.release().await.unwrap();

        // No message is published when a lock expires.
        locks.acquire(&name("r"), unrenewed(1_000)).await.unwrap().detach().unwrap();
        let last = locks.acquire(&name("r"), terms).await.expect("it tries again");
        assert_eq!(last.token(), Ok(token(36)));
    }
}

/// Most clients poll, and hand a lock over late.
#[tokio::test]
async fn waiter_does_not_poll() {
    let redis = redis_before(33).await;
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    let other = locks(&redis.url()).acquire(&name("r"), lasting()).await.unwrap();
    let far = locks(&proxy.url("redis"));
    let waiter = waiting(&redis, &far, unrenewed(60_000).wait(PATIENCE)).await;
    // It tries before it subscribes, and after.
    assert_eq!(proxy.requests(LOCK), 2);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(proxy.requests(LOCK), 2);
    other.release().await.unwrap();
    assert_eq!(waiter.await.unwrap().unwrap().token(), Ok(token(34)));
    assert_eq!(proxy.requests(LOCK), 3);
}

/// In the queue, a waiter must show that it is alive.
#[tokio::test]
async fn fair_waiter_tries_no_more_than_once_a_second() {
    let redis = redis_before(33).await;
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    let other = locks(&redis.url()).acquire(&name("r"), lasting()).await.unwrap();
    let far = locks(&proxy.url("redis"));
    let begun = Instant::now();
    let waiter = waiting(&redis, &far, unrenewed(60_000).wait(PATIENCE).fair()).await;
    sleep(Duration::from_millis(2_500)).await;
    let tries = proxy.requests(LOCK) as u64;
    // It tries before it subscribes, after, and once for each second since.
    let allowed = 2 + begun.elapsed().as_secs();
    assert!(tries <= allowed, "{tries} tries, allowed are {allowed}");
    other.release().await.unwrap();
    assert_eq!(waiter.await.unwrap().unwrap().token(), Ok(token(34)));
}

/// A lease, and a copy of its request that the network delivers late.
async fn acquired_with_a_late_copy(redis: &Redis) -> (Proxy, Lease, LateRequest) {
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    let locks = locks(&proxy.url("redis"));
    let held = proxy.hold(LOCK);
    let terms = unrenewed(60_000);
    let r = name("r");
    let (lease, late) =
        tokio::join!(locks.acquire(&r, terms), async { held.caught().await.unwrap().cut() });
    (proxy, lease.unwrap(), late)
}

/// The holder alone identifies no ownership: seals that compared only the holder gave two holders
/// token 9.
#[tokio::test]
async fn late_grant_to_the_same_holder_is_another_ownership() {
    let redis = redis_before(33).await;
    let backend = lock_client::redis::Redis::open(&redis.url()).unwrap();
    for (lease_asks, token_of_lease) in [(Asks::ToRenew, 33), (Asks::ToReissue, 35)] {
        let (_proxy, lease, late) = acquired_with_a_late_copy(&redis).await;
        assert_eq!(lease.token(), Ok(token(token_of_lease)));
        expire(&redis).await;
        let next = token_of_lease + 1;
        assert_eq!(late.deliver().await.unwrap(), format!(":{next}\r\n"));

        // A comparison of the holder alone would match.
        let held = backend.status(&name("r")).await.unwrap().held.unwrap();
        assert_eq!((&held.ownership.holder, held.token), (lease.holder(), token(next)));
        match lease_asks {
            Asks::ToRenew => assert!(matches!(lease.renew().await, Err(RenewError::Lost(_)))),
            Asks::ToReissue => {
                let reissued = lease.reissue(token(token_of_lease)).await;
                assert!(matches!(reissued, Err(RenewError::Lost(_))), "{reissued:?}");
            }
        }
        assert!(lease.token().is_err());
        let unchanged = backend.status(&name("r")).await.unwrap();
        assert_eq!(unchanged.held.unwrap().ownership, held.ownership);
        assert_eq!(unchanged.last_token, Some(next));
        expire(&redis).await;
    }
}

#[derive(Clone, Copy, Debug)]
enum Asks {
    ToRenew,
    ToReissue,
}

#[tokio::test]
async fn acquire_that_is_delivered_again_after_the_release_gives_nobody_the_same_token() {
    let redis = redis_before(33).await;
    let backend = lock_client::redis::Redis::open(&redis.url()).unwrap();
    let locks = locks(&redis.url());
    let (_proxy, lease, late) = acquired_with_a_late_copy(&redis).await;
    assert_eq!(lease.token(), Ok(token(33)));
    let first = Ownership { holder: lease.holder().clone(), grant: token(33) };
    assert_eq!(lease.release().await.unwrap(), Released::Released);

    // Another client holds the lock.
    let second = locks.acquire(&name("r"), unrenewed(60_000)).await.unwrap();
    assert_eq!(second.token(), Ok(token(34)));
    let busy = late.deliver().await.unwrap();
    assert!(busy.starts_with("*2\r\n:0\r\n"), "{busy}");
    assert_eq!(counter(&redis).await, 34);
    assert_eq!(second.release().await.unwrap(), Released::Released);

    // The lock is free: the late request acquires it for a holder that has gone, until its ttl
    // ends.
    for reply in [":35\r\n", "*3\r\n:1\r\n:35\r\n:35\r\n"] {
        assert_eq!(late.deliver().await.unwrap(), reply);
        let ttl = Ttl::from_secs(60).unwrap();
        assert_eq!(backend.renew(&name("r"), &first, ttl).await.unwrap(), None);
        assert_eq!(backend.reissue(&name("r"), &first, token(99)).await.unwrap(), None);
        assert_eq!(counter(&redis).await, 35);
    }
    expire(&redis).await;
    let third = locks.acquire(&name("r"), unrenewed(60_000)).await.unwrap();
    assert_eq!(third.token(), Ok(token(36)));
}

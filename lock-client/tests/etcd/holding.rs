//! Tokens, and the locks that they belong to.

use std::time::{Duration, Instant};

use fence::Holder;
use lock_client::{
    Locks, Order, Released, RenewError, Terms, Ttl,
    backend::{Backend, BackendError},
};
use testbed::{Etcd, wait::until_async};

use super::service::{
    SOON, acquired, attempt, behind_proxy, busy, client, held, own_leases, release, secs,
    until_free,
};
use crate::{lock_service::ttl, names::name};

/// etcd reports the remaining time in whole seconds.
const WHOLE_SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn repeated_attempt_of_the_holder_returns_the_same_grant_and_sets_the_full_ttl() {
    let etcd = Etcd::start().await.unwrap();
    let (locks, holder) = (client(&etcd.url()), Holder::random());
    let first = held(locks.try_acquire(&name("r"), &holder, secs(10), Order::Unordered).await);
    for (ttl, order) in [(10, Order::Unordered), (60, Order::Unordered), (60, Order::Fair)] {
        let asked = Instant::now();
        let again = held(locks.try_acquire(&name("r"), &holder, secs(ttl), order).await);
        assert_eq!((again.token, &again.ownership), (first.token, &first.ownership));
        assert!(again.asked > first.asked);
        let held = locks.status(&name("r")).await.unwrap().held.unwrap();
        let lasts = held.remaining.unwrap() + asked.elapsed() + WHOLE_SECOND;
        assert!(lasts >= Duration::from_secs(ttl), "{held:?}");
    }
    assert!(release(&locks, &first).await);
    assert_eq!(own_leases(&etcd).await, 0);
}

#[tokio::test]
async fn renewal_for_another_ttl_keeps_the_lock_at_least_so_long() {
    let etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let lock = acquired(&locks, &name("r"), secs(5)).await;
    let mut longest = Duration::ZERO;
    for millis in [60_000, 5_000, 90_000] {
        let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
        // A renewal for less sets the full time of the session once more.
        longest = longest.max(ttl.as_duration());
        let asked = Instant::now();
        let renewed = locks.renew(&name("r"), &lock.ownership, ttl).await.unwrap();
        assert_eq!(renewed, Some(lock.token));
        let held = locks.status(&name("r")).await.unwrap().held.unwrap();
        assert_eq!(held.ownership, lock.ownership);
        let lasts = held.remaining.unwrap() + asked.elapsed() + WHOLE_SECOND;
        assert!(lasts >= longest, "{millis}: {held:?}");
    }
    // The last renewal before the end of `max_hold`. The client deletes the lock then.
    let rest = Ttl::new(Duration::from_millis(300)).unwrap();
    let renewed = locks.renew(&name("r"), &lock.ownership, rest).await.unwrap();
    assert_eq!(renewed, Some(lock.token));
    until_free(&locks).await;
    assert!(!release(&locks, &lock).await);
}

/// Returns why an attempt for this ttl is invalid.
async fn invalid(locks: &lock_client::etcd::Etcd, millis: u64, order: Order) -> String {
    let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
    match locks.try_acquire(&name("r"), &Holder::random(), ttl, order).await {
        Err(BackendError::Invalid(reason)) => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

/// A waiter has a lease, too. It still exists when the first renewal comes.
#[tokio::test]
async fn renewal_takes_two_requests_whether_the_owner_has_waited_or_not() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let mut lock = acquired(&locks, &name("r"), secs(60)).await;
    for waits in [false, true] {
        if waits {
            let waiter = Holder::random();
            busy(attempt(&locks, &waiter, Order::Fair).await);
            assert!(release(&locks, &lock).await);
            lock = held(attempt(&locks, &waiter, Order::Fair).await);
        }
        let renew = async || locks.renew(&name("r"), &lock.ownership, secs(60)).await.unwrap();
        assert_eq!(renew().await, Some(lock.token));
        for _ in 0..3 {
            let requests = proxy.requests("POST /v3/");
            assert_eq!(renew().await, Some(lock.token));
            assert_eq!(proxy.requests("POST /v3/"), requests + 2, "keep-alive and read");
        }
    }
    assert!(release(&locks, &lock).await);
}

/// The lock is left as it was.
#[tokio::test]
async fn adoption_for_a_ttl_that_etcd_does_not_have_is_invalid() {
    let etcd = Etcd::start_with(&["--election-timeout=10000"]).await.unwrap();
    let (locks, address) = (Locks::new(client(&etcd.url())), etcd.address(0));
    let lease = locks.acquire(&name("r"), Terms::new(secs(20)).detachable()).await.unwrap();
    let token = lease.token().unwrap();
    let mut detached = lease.detach().unwrap();
    let not_whole =
        "a ttl in etcd is in whole seconds, 2 s at least by default, and 15500 ms is not";
    let too_short =
        format!("etcd {address}: a ttl of 14 s is too short; the shortest of this etcd is 15 s");
    for (millis, expected) in [(15_500, not_whole), (14_000, &too_short)] {
        let adopted = locks.adopt(detached.clone(), ttl(millis)).await;
        let Err(RenewError::LockService { source: BackendError::Invalid(reason), .. }) = adopted
        else {
            panic!("{millis}: {adopted:?}");
        };
        assert_eq!(reason.to_string(), expected);
    }
    let leases = etcd.etcdctl(&["lease", "list"]).await.unwrap();
    assert!(leases.contains("found 1 leases"), "the lock's: {leases}");
    for seconds in [20, 15, 40] {
        let adopted = locks.adopt(detached, secs(seconds)).await.unwrap();
        assert_eq!(adopted.token().unwrap(), token, "the control");
        detached = adopted.detach().unwrap();
    }
    let released = locks.adopt(detached, secs(40)).await.unwrap().release().await.unwrap();
    assert_eq!(released, Released::Released);
}

#[tokio::test]
async fn ttl_that_etcd_does_not_have_is_invalid() {
    let etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let reason = invalid(&locks, 1_500, Order::Unordered).await;
    assert_eq!(
        reason,
        "a ttl in etcd is in whole seconds, 2 s at least by default, and 1500 ms is not"
    );
    acquired(&locks, &name("r"), secs(1)).await;
}

/// Whether the lock is free or held, for a client that is new or has acquired locks.
#[tokio::test]
async fn ttl_below_the_shortest_of_etcd_is_invalid() {
    let etcd = Etcd::start_with(&["--election-timeout=10000"]).await.unwrap();
    let (locks, address) = (client(&etcd.url()), etcd.address(0));
    let rejected = async || {
        for seconds in [1, 13, 14] {
            for order in [Order::Unordered, Order::Fair] {
                for locks in [&locks, &client(&etcd.url())] {
                    let reason = invalid(locks, seconds * 1_000, order).await;
                    let ttl = format!("a ttl of {seconds} s is too short");
                    let shortest = "the shortest of this etcd is 15 s";
                    assert_eq!(reason, format!("etcd {address}: {ttl}; {shortest}"));
                }
            }
        }
    };
    rejected().await;
    let leases = etcd.etcdctl(&["lease", "list"]).await.unwrap();
    assert!(leases.contains("found 0 leases"), "{leases}");
    acquired(&locks, &name("r"), secs(15)).await;
    rejected().await;
    acquired(&locks, &name("other"), secs(15)).await;
    rejected().await;
}

/// The client has learned a shorter time, and asks for a shared lease that lasts longer than the
/// ttl.
#[tokio::test]
async fn ttl_that_has_become_too_short_is_named_in_the_error() {
    let (mut first, second) = (
        Etcd::start().await.unwrap(),
        Etcd::start_with(&["--election-timeout=10000"]).await.unwrap(),
    );
    let locks = client(&format!("etcd://{},{}", first.address(0), second.address(0)));
    held(locks.try_acquire(&name("r"), &Holder::random(), secs(5), Order::Unordered).await);
    first.process(0).kill().unwrap();
    let is_left = async || Ok(locks.status(&name("r")).await.is_ok());
    until_async(SOON, is_left).await.unwrap();
    // The first lease has an extra time only if etcd has shown that it is long enough.
    let reason = invalid(&locks, 5_000, Order::Unordered).await;
    assert!(
        reason.contains("a ttl of 5 s is too short; the shortest of this etcd is 15 s"),
        "{reason}"
    );
}

#[tokio::test]
async fn names_differ_byte_for_byte() {
    let etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let longest = "x".repeat(512);
    let nearly = format!("{}y", "x".repeat(511));
    let names = [
        "a",
        "A",
        "a/b",
        "a%2Fb",
        "a%2fb",
        "a%b",
        "a.b",
        "a/queue",
        "a/queue/x",
        "a/offset",
        "a0",
        "ä",
        "a\u{308}",
        "ß",
        "ss",
        " a",
        "a ",
        "...",
        &longest,
        &nearly,
    ];
    let mut names = names.map(name);
    // In both orders: a later name must not be among the keys of an earlier one, nor the reverse.
    for _ in 0..2 {
        let mut kept = Vec::new();
        for name in &names {
            let lock = acquired(&locks, name, secs(60)).await;
            let other = Holder::random();
            busy(locks.try_acquire(name, &other, secs(60), Order::Unordered).await);
            kept.push((name, lock));
        }
        for (name, lock) in kept {
            let status = locks.status(name).await.unwrap();
            assert_eq!(status.held.unwrap().ownership, lock.ownership, "{name:?}");
            assert_eq!(status.queued, 0, "{name:?}");
            let holder = &lock.ownership.holder;
            assert!(locks.release(name, holder, Some(lock.token)).await.unwrap(), "{name:?}");
        }
        names.reverse();
    }
}

#[tokio::test]
async fn tries_that_fail_leave_no_own_lease_behind() {
    let etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let owner = acquired(&locks, &name("r"), secs(60)).await;
    for _ in 0..3 {
        busy(attempt(&locks, &Holder::random(), Order::Unordered).await);
    }
    assert_eq!(own_leases(&etcd).await, 0);
    assert!(release(&locks, &owner).await);
}

//! Tokens, and the locks that they belong to.

use std::time::Duration;

use fence::Holder;
use lock_client::{
    Locks, Moment, Order, Terms, Ttl,
    backend::{Backend, BackendError, Ownership},
};
use testbed::Etcd;

use super::service::{acquired, attempt, busy, client, held, release, secs, until_free};
use crate::names::name;

#[tokio::test]
async fn token_grows_over_release_expiry_and_restart() {
    let mut etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let mut tokens = Vec::new();
    let released = acquired(&locks, &name("r"), secs(60)).await;
    assert!(release(&locks, &released).await);
    let expired = acquired(&locks, &name("r"), secs(1)).await;
    until_free(&locks).await;
    let kept = acquired(&locks, &name("r"), secs(60)).await;
    etcd.restart().await.unwrap();
    let renewed = locks.renew(&name("r"), &kept.ownership, secs(60)).await.unwrap();
    assert_eq!(renewed, Some(kept.token), "a restart keeps the lock");
    assert!(release(&locks, &kept).await);
    let last = acquired(&locks, &name("r"), secs(60)).await;
    tokens.extend([released.token, expired.token, kept.token, last.token]);
    assert!(tokens.is_sorted_by(|before, after| before < after), "{tokens:?}");
    assert_eq!(last.ownership.grant, last.token);
}

#[tokio::test]
async fn repeated_attempt_of_the_holder_returns_the_same_grant_and_sets_the_full_ttl() {
    let etcd = Etcd::start().await.unwrap();
    let (locks, holder) = (client(&etcd.url()), Holder::random());
    let first = held(locks.try_acquire(&name("r"), &holder, secs(10), Order::Unordered).await);
    for (ttl, order) in [(10, Order::Unordered), (60, Order::Unordered), (60, Order::Fair)] {
        let again = held(locks.try_acquire(&name("r"), &holder, secs(ttl), order).await);
        assert_eq!((again.token, &again.ownership), (first.token, &first.ownership));
        assert!(again.asked > first.asked);
        let held = locks.status(&name("r")).await.unwrap().held.unwrap();
        assert!(held.remaining.unwrap() > Duration::from_secs(ttl - 2), "{held:?}");
    }
    let leases = etcd.etcdctl(&["lease", "list"]).await.unwrap();
    assert!(leases.contains("found 2 leases"), "one of each duration: {leases}");
    assert!(release(&locks, &first).await);
    let leases = etcd.etcdctl(&["lease", "list"]).await.unwrap();
    assert!(leases.contains("found 0 leases"), "{leases}");
}

#[tokio::test]
async fn expired_lock_is_not_renewed() {
    let etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let expired = acquired(&locks, &name("r"), secs(1)).await;
    until_free(&locks).await;
    let renewal = async || locks.renew(&name("r"), &expired.ownership, secs(60)).await;
    assert_eq!(renewal().await.unwrap(), None);
    let next = acquired(&locks, &name("r"), secs(60)).await;
    assert_eq!(renewal().await.unwrap(), None);
    let reissued = locks.reissue(&name("r"), &expired.ownership, next.token).await;
    assert_eq!(reissued.unwrap(), None);
    assert!(!release(&locks, &expired).await);
    let renewed = locks.renew(&name("r"), &next.ownership, secs(60)).await;
    assert_eq!(renewed.unwrap(), Some(next.token), "the control");
}

#[tokio::test]
async fn renewal_for_another_ttl_keeps_the_lock_at_least_so_long() {
    let etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let lock = acquired(&locks, &name("r"), secs(5)).await;
    for (millis, at_least) in [(60_000, 58), (300, 58), (5_000, 58), (90_000, 88)] {
        let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
        let renewed = locks.renew(&name("r"), &lock.ownership, ttl).await.unwrap();
        assert_eq!(renewed, Some(lock.token));
        let held = locks.status(&name("r")).await.unwrap().held.unwrap();
        assert_eq!(held.ownership, lock.ownership);
        assert!(held.remaining.unwrap() > Duration::from_secs(at_least), "{millis}: {held:?}");
    }
    assert!(release(&locks, &lock).await);
    until_free(&locks).await;
}

#[tokio::test]
async fn ttl_that_etcd_does_not_have_is_invalid() {
    let etcd = Etcd::start().await.unwrap();
    let etcd_of_long_elections = Etcd::start_with(&["--election-timeout=10000"]).await.unwrap();
    let slow = client(&etcd_of_long_elections.url());
    let locks = client(&etcd.url());
    let invalid = async |locks: &lock_client::etcd::Etcd, millis| {
        let ttl = Ttl::new(Duration::from_millis(millis)).unwrap();
        match locks.try_acquire(&name("r"), &Holder::random(), ttl, Order::Unordered).await {
            Err(BackendError::Invalid(reason)) => reason.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let reason = invalid(&locks, 1_500).await;
    assert_eq!(reason, "a ttl in etcd is in whole seconds, and 1500 ms is not");
    let reason = invalid(&slow, 1_000).await;
    let address = etcd_of_long_elections.address(0);
    let expected =
        format!("etcd {address}: a ttl of 1 s is too short; the shortest of this etcd is 15 s");
    assert_eq!(reason, expected);
    let leases = etcd_of_long_elections.etcdctl(&["lease", "list"]).await.unwrap();
    assert!(leases.contains("found 0 leases"), "{leases}");
    acquired(&slow, &name("r"), secs(15)).await;
    acquired(&locks, &name("r"), secs(1)).await;
}

#[tokio::test]
async fn only_the_holder_releases() {
    let etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let other = Holder::random();
    busy(attempt(&locks, &other, Order::Unordered).await);
    assert!(!locks.release(&name("r"), &other, None).await.unwrap());
    // With a grant that is right, and a holder that is not.
    let foreign = Ownership { holder: other, grant: lock.ownership.grant };
    assert_eq!(locks.renew(&name("r"), &foreign, secs(60)).await.unwrap(), None);
    let reissued = locks.reissue(&name("r"), &foreign, lock.token).await.unwrap();
    assert_eq!(reissued, None);
    // With a holder that is right, and a grant that is not.
    let earlier = Ownership { grant: "1".parse().unwrap(), ..lock.ownership.clone() };
    assert_eq!(locks.renew(&name("r"), &earlier, secs(60)).await.unwrap(), None);
    assert!(release(&locks, &lock).await);
    assert!(!release(&locks, &lock).await, "it is free");
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

/// The last renewal is for the rest of the time, which is no whole number of seconds.
#[tokio::test]
async fn lease_ends_with_its_max_hold_and_no_earlier() {
    let etcd = Etcd::start().await.unwrap();
    let locks = Locks::new(client(&etcd.url()));
    let max_hold = Duration::from_millis(2_500);
    let begun = Moment::now();
    let terms = Terms::new(secs(2)).max_hold(max_hold);
    let lease = locks.acquire(&name("r"), terms).await.unwrap();
    lease.lost().await;
    let lasted = begun.elapsed();
    // The deadline leaves out the drift.
    assert!(lasted > Duration::from_millis(2_300) && lasted < 2 * max_hold, "{lasted:?}");
}

//! Requests that hang, and what they must not delay.

use std::time::Duration;

use fence::Holder;
use futures_util::future::join_all;
use lock_client::{
    Order,
    backend::{Attempt, Backend, BackendError},
};
use testbed::{Etcd, Proxy, wait::until};
use tokio::time::{sleep, timeout};

use super::{
    connections::Forwarder,
    service::{
        DELETION, Held, PUT, SOON, Slow, acquired, behind_proxy, client, release, renews, secs,
        while_it_hangs,
    },
};
use crate::names::name;

/// It was never sent, and can't arrive late.
#[tokio::test]
async fn try_that_waits_for_a_connection_seals_no_session() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    proxy.add(Slow(PUT, Duration::from_millis(1_500)));
    let acquires = (0..80).map(async |number| {
        let (name, holder) = (name(&format!("r{number}")), Holder::random());
        loop {
            match locks.try_acquire(&name, &holder, secs(60), Order::Unordered).await {
                Ok(Attempt::Granted { .. }) => return,
                Err(BackendError::Unavailable(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    timeout(SOON, join_all(acquires)).await.unwrap();
    assert_eq!(proxy.requests("/v3/kv/put"), 0, "seals");
    assert_eq!(proxy.requests("/v3/lease/grant"), 1);
}

/// The reserved connection is busy, but it exists.
#[tokio::test]
async fn renewal_that_hangs_delays_no_grant() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let r = name("r");
    let lock = acquired(&locks, &r, secs(60)).await;
    let renewing = locks.renew(&r, &lock.ownership, secs(60));
    let other = async { drop(acquired(&locks, &name("other"), secs(90)).await) };
    let renewed = while_it_hangs(&proxy, "/v3/lease/keepalive", renewing, other).await;
    assert_eq!(renewed.unwrap(), Some(lock.token));
}

/// No further connection can be made meanwhile.
#[tokio::test]
async fn try_that_hangs_delays_no_renewal() {
    let (_etcd, proxy, _) = behind_proxy().await;
    let mut forwarder = Forwarder::start(proxy.address()).await;
    let (locks, r, other) = (client(&forwarder.url()), name("r"), name("other"));
    let locks = locks.answer_within(SOON);
    let lock = acquired(&locks, &r, secs(60)).await;
    locks.status(&r).await.unwrap();
    forwarder.refuse().await;
    let trying = acquired(&locks, &other, secs(60));
    while_it_hangs(&proxy, PUT, trying, renews(&locks, "r", &lock, 60)).await;
}

/// Its connection is busy, too, so that it needs another.
#[tokio::test]
async fn tries_that_wait_for_connections_delay_no_renewal() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let locks = locks.answer_within(SOON);
    let (first, second) = (name("first"), name("second"));
    let hangs = acquired(&locks, &first, secs(60)).await;
    let lock = acquired(&locks, &second, secs(90)).await;
    let puts = proxy.requests(PUT);
    proxy.add(Slow(PUT, 2 * SOON));
    let tries = join_all((0..50).map(async |number| {
        let (name, holder) = (name(&format!("r{number}")), Holder::random());
        let _ = locks.try_acquire(&name, &holder, secs(90), Order::Unordered).await;
    }));
    let renewing = async {
        // Tries have all connections that they may have, and more of them wait.
        until(SOON, || Ok(proxy.requests(PUT) >= puts + 12)).await.unwrap();
        let hold = proxy.hold("/v3/lease/keepalive");
        let renew = async {
            let _late = hold.caught().await.unwrap();
            renews(&locks, "second", &lock, 90).await;
        };
        tokio::select! {
            _ = locks.renew(&first, &hangs.ownership, secs(60)) => panic!("the control: it hangs"),
            () = renew => {}
        }
    };
    tokio::select! {
        _ = tries => panic!("the control: they hang"),
        () = renewing => {}
    }
}

/// Releases use all connections that they may have, and more of them wait.
#[tokio::test]
async fn releases_that_hang_delay_no_renewal() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let locks = locks.answer_within(SOON);
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let names: Vec<_> = (0..20).map(|number| name(&format!("r{number}"))).collect();
    let others = join_all(names.iter().map(|name| acquired(&locks, name, secs(60)))).await;
    proxy.add(Slow(DELETION, 2 * SOON));
    let releases = names.iter().zip(&others).map(async |(name, other)| {
        let _ = locks.release(name, &other.ownership.holder, Some(other.token)).await;
    });
    renews_meanwhile(&locks, &lock, &proxy, (DELETION, 5), join_all(releases)).await;
}

/// Each moves its key to the session of another ttl.
#[tokio::test]
async fn attempts_that_hang_while_they_move_delay_no_renewal() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let locks = locks.answer_within(SOON);
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let names: Vec<_> = (0..20).map(|number| name(&format!("r{number}"))).collect();
    let others = join_all(names.iter().map(|name| acquired(&locks, name, secs(30)))).await;
    let puts = proxy.requests(PUT);
    proxy.add(Slow(PUT, 2 * SOON));
    let moves = names.iter().zip(&others).map(async |(name, other)| {
        let holder = &other.ownership.holder;
        let _ = locks.try_acquire(name, holder, secs(60), Order::Unordered).await;
    });
    renews_meanwhile(&locks, &lock, &proxy, (PUT, puts + 5), join_all(moves)).await;
}

/// Renews `r` once so many requests with a text have come, which hang.
async fn renews_meanwhile(
    locks: &lock_client::etcd::Etcd,
    lock: &Held,
    proxy: &Proxy,
    (text, number): (&str, usize),
    hanging: impl Future,
) {
    let renewing = async {
        until(SOON, || Ok(proxy.requests(text) >= number)).await.unwrap();
        for _ in 0..3 {
            renews(locks, "r", lock, 60).await;
        }
    };
    tokio::select! {
        _ = hanging => panic!("the control: they hang"),
        () = renewing => {}
    }
}

/// No further connection can be made meanwhile.
#[tokio::test]
async fn releases_that_hang_take_no_connection_of_a_renewal() {
    let (_etcd, proxy, _) = behind_proxy().await;
    let mut forwarder = Forwarder::start(proxy.address()).await;
    let locks = client(&forwarder.url()).answer_within(SOON);
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let (a, b) = (name("a"), name("b"));
    let [first, second] =
        [acquired(&locks, &a, secs(60)).await, acquired(&locks, &b, secs(60)).await];
    forwarder.refuse().await;
    let releasing = [(&a, first), (&b, second)].map(async |(name, held)| {
        locks.release(name, &held.ownership.holder, Some(held.token)).await.unwrap()
    });
    let [one, other] = releasing;
    let renewing = renews(&locks, "r", &lock, 60);
    let both_hang = async { assert!(while_it_hangs(&proxy, DELETION, other, renewing).await) };
    assert!(while_it_hangs(&proxy, DELETION, one, both_hang).await);
}

/// All logins have ended, and the try is the first to log in again.
#[tokio::test]
async fn login_of_a_try_that_hangs_delays_no_renewal() {
    let mut etcd = Etcd::start().await.unwrap();
    etcd.require_users().await.unwrap();
    let proxy = Proxy::start(etcd.address(0)).await.unwrap();
    let url = proxy.url("etcd").replace("etcd://", "etcd://locker:p%40ss@");
    let (locks, r) = (client(&url).answer_within(SOON), name("r"));
    let lock = acquired(&locks, &r, secs(60)).await;
    renews(&locks, "r", &lock, 60).await;
    for ends_logins in ["disable", "enable"] {
        etcd.etcdctl(&["auth", ends_logins]).await.unwrap();
    }
    let renewing = renews(&locks, "r", &lock, 60);
    let looked = while_it_hangs(&proxy, "/v3/auth/authenticate", locks.status(&r), renewing).await;
    looked.unwrap();
}

/// The try's login serves them, too.
#[tokio::test]
async fn lock_that_was_just_acquired_needs_no_login() {
    let mut etcd = Etcd::start().await.unwrap();
    etcd.require_users().await.unwrap();
    let proxy = Proxy::start(etcd.address(0)).await.unwrap();
    let url = proxy.url("etcd").replace("etcd://", "etcd://locker:p%40ss@");
    let (locks, r) = (client(&url), name("r"));
    let lock = acquired(&locks, &r, secs(60)).await;
    let logins = proxy.requests("/v3/auth/authenticate");
    assert_eq!(locks.renew(&r, &lock.ownership, secs(60)).await.unwrap(), Some(lock.token));
    assert!(release(&locks, &lock).await);
    assert_eq!(proxy.requests("/v3/auth/authenticate"), logins);
}

/// It joins the session that the renewal keeps alive.
#[tokio::test]
async fn try_that_keeps_a_session_alive_delays_no_renewal() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let locks = locks.answer_within(SOON);
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    // A try that comes later than half a second keeps it alive.
    sleep(Duration::from_millis(600)).await;
    let other = name("other");
    let trying = acquired(&locks, &other, secs(60));
    let renewing = renews(&locks, "r", &lock, 60);
    while_it_hangs(&proxy, "/v3/lease/keepalive", trying, renewing).await;
}

//! A lost connection is no lost session, and a lost session is a lost lease.

use std::{sync::atomic::Ordering, time::Duration};

use fence::Holder;
use futures_util::future::join_all;
use lock_client::{
    Locks, Order, Terms,
    backend::{Backend, BackendError},
};
use testbed::{
    Proxy, ZooKeeper,
    wait::{until, until_async},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    service::{SOON, acquired, attempt, busy, client, release, secs, until_free},
    strike::{CREATE, DELETE, SYNC, Slow, count, delay},
};
use crate::names::name;

#[tokio::test]
async fn lease_goes_on_after_its_connections_were_cut() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let locks = Locks::new(client(&proxy.url("zookeeper")).answer_within(Duration::from_secs(1)));
    let lease = locks.acquire(&name("r"), secs(12)).await.unwrap();
    let token = lease.token().unwrap();
    for _ in 0..2 {
        proxy.cut();
        sleep(Duration::from_secs(3)).await;
        let left = lease.remaining();
        proxy.mend();
        until(SOON, || Ok(lease.remaining() > left)).await.expect("it is renewed");
        assert_eq!(lease.token().unwrap(), token);
    }
    // Longer than a session that nothing renews.
    sleep(Duration::from_secs(14)).await;
    assert_eq!(lease.token().unwrap(), token);
    let other = client(&zookeeper.url());
    busy(attempt(&other, &Holder::random(), Order::Unordered).await);
    let reissued = lease.reissue(token).await.unwrap();
    assert!(reissued > token);
    lease.release().await.unwrap();
}

/// They use the same connection, and are not answered.
#[tokio::test]
async fn releases_that_hang_delay_no_renewal() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let locks = client(&proxy.url("zookeeper")).answer_within(Duration::from_secs(1));
    let kept = acquired(&locks, &name("kept"), secs(60)).await;
    let mut releases = JoinSet::new();
    let mut others = Vec::new();
    for number in 0..20 {
        let name = name(&format!("r{number}"));
        let lock = acquired(&locks, &name, secs(60)).await;
        others.push((name, lock));
    }
    let deletions = count(&proxy, DELETE);
    delay(&proxy, DELETE, 2 * SOON);
    for (name, lock) in others {
        let locks = locks.clone();
        let holder = lock.ownership.holder;
        releases.spawn(async move { locks.release(&name, &holder, Some(lock.token)).await });
    }
    until(SOON, || Ok(deletions.load(Ordering::SeqCst) >= 20)).await.unwrap();
    let kept_name = name("kept");
    let renewed = locks.renew(&kept_name, &kept.ownership, secs(60));
    let renewed = timeout(SOON / 2, renewed).await.expect("no release delays it").unwrap();
    assert_eq!(renewed, Some(kept.token));
    while let Some(released) = releases.join_next().await {
        released.unwrap().expect_err("the control: it hangs");
    }
}

/// The deadline passes while the client is cut off. Only then the lock goes to the next.
#[tokio::test]
async fn lease_of_a_client_that_stays_cut_off_ends_before_its_session() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let locks = Locks::new(client(&proxy.url("zookeeper")).answer_within(Duration::from_secs(1)));
    let lease = locks.acquire(&name("r"), secs(3)).await.unwrap();
    let token = lease.token().unwrap();
    proxy.cut();
    let elsewhere = Locks::new(client(&zookeeper.url()));
    let next = elsewhere.acquire(&name("r"), secs(60)).await.unwrap();
    assert!(lease.token().is_err(), "the lease ended before the session did");
    assert!(next.token().unwrap() > token);
    proxy.mend();
    timeout(SOON, lease.lost()).await.unwrap();
    drop(lease);
    locks.wait_for_background().await;
    assert!(next.token().is_ok(), "the late release leaves the next owner alone");
    next.release().await.unwrap();
}

/// ZooKeeper is paused for longer than the ttl. The lease ends at its deadline, whatever ZooKeeper
/// thinks of the session when it is back.
#[tokio::test]
async fn lease_ends_at_its_deadline_while_zookeeper_is_paused() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    let locks = Locks::new(client(&zookeeper.url()).answer_within(Duration::from_secs(1)));
    let lease = locks.acquire(&name("r"), secs(2)).await.unwrap();
    zookeeper.process(0).pause().await.unwrap();
    until(SOON, || Ok(lease.token().is_err())).await.unwrap();
    zookeeper.process(0).resume().unwrap();
    assert!(lease.token().is_err(), "it never becomes valid again");
    timeout(SOON, lease.lost()).await.unwrap();
}

/// A client that lives, and does not renew, keeps no session alive.
#[tokio::test]
async fn lease_without_renewal_ends_with_its_ttl() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = Locks::new(client(&zookeeper.url()));
    let terms = Terms::new(secs(2)).without_renewal();
    let lease = locks.acquire(&name("r"), terms).await.unwrap();
    until_free(&client(&zookeeper.url())).await;
    assert!(lease.token().is_err());
}

/// Locks that are held need no connections, of which a member allows 60 to each address by default.
#[tokio::test]
async fn many_held_locks_need_few_connections() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let mut kept = Vec::new();
    for number in 0..100 {
        let name = name(&format!("r{number}"));
        kept.push((acquired(&locks, &name, secs(60)).await, name));
    }
    let has_few = async || Ok(zookeeper.connections(0).await? <= 2);
    until_async(SOON, has_few).await.expect("the client's, and that of the question");
    for (lock, name) in &kept {
        let renewed = locks.renew(name, &lock.ownership, secs(60)).await.unwrap();
        assert_eq!(renewed, Some(lock.token));
    }
}

/// More holders than a member allows connections.
#[tokio::test]
async fn two_hundred_holders_acquire_at_once() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let names: Vec<_> = (0..200).map(|number| name(&format!("r{number}"))).collect();
    let held = join_all(names.iter().map(|name| acquired(&locks, name, secs(60)))).await;
    let releases = names
        .iter()
        .zip(&held)
        .map(|(name, lock)| locks.release(name, &lock.ownership.holder, Some(lock.token)));
    for released in join_all(releases).await {
        assert!(released.unwrap());
    }
}

/// Attempts that hang, at the look or at the node, take no turn from renewals.
#[tokio::test]
async fn renewal_waits_for_no_attempts() {
    for (kind, order) in [(SYNC, Order::Unordered), (CREATE, Order::Fair)] {
        let zookeeper = ZooKeeper::start().await.unwrap();
        let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
        let locks = client(&proxy.url("zookeeper")).answer_within(Duration::from_secs(1));
        let kept = acquired(&locks, &name("kept"), secs(60)).await;
        let free = acquired(&locks, &name("r"), secs(60)).await;
        assert!(release(&locks, &free).await);
        // From now on, a try in no order looks first.
        locks.status(&name("r")).await.unwrap();
        let sent = count(&proxy, kind);
        proxy.add(Slow { kind, delay: SOON });
        let attempts = (0..300).map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move { attempt(&locks, &Holder::random(), order).await })
        });
        let attempts: Vec<_> = attempts.collect();
        until(SOON, || Ok(sent.load(Ordering::SeqCst) > 0)).await.unwrap();
        let kept_name = name("kept");
        let renewed = locks.renew(&kept_name, &kept.ownership, secs(60));
        let renewed = timeout(SOON / 2, renewed).await.expect("no attempt delays it");
        assert_eq!(renewed.unwrap(), Some(kept.token), "{kind}");
        for attempt in attempts {
            attempt.await.unwrap().expect_err("the control: it hangs");
        }
    }
}

/// There, a renewal connects anew. That ends requests on the old connection, so it waits a little for them.
#[tokio::test]
async fn renewal_in_an_ensemble_waits_for_no_attempt_that_hangs() {
    let zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let locks = client(&proxy.url("zookeeper")).answer_within(SOON);
    let kept = acquired(&locks, &name("kept"), secs(60)).await;
    let creations = count(&proxy, CREATE);
    proxy.add(Slow { kind: CREATE, delay: 2 * SOON });
    let trying = {
        let locks = locks.clone();
        tokio::spawn(async move { attempt(&locks, &Holder::random(), Order::Fair).await })
    };
    until(SOON, || Ok(creations.load(Ordering::SeqCst) > 0)).await.unwrap();
    let kept_name = name("kept");
    let renewed = locks.renew(&kept_name, &kept.ownership, secs(60));
    let renewed = timeout(SOON / 2, renewed).await.expect("the attempt does not delay it");
    assert_eq!(renewed.unwrap(), Some(kept.token));
    trying.await.unwrap().expect_err("the control: it hangs");
}

#[tokio::test]
async fn zookeeper_that_restarts_is_found_again() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let waiter = Holder::random();
    let wakeups = locks.subscribe(&name("r"), &waiter, Order::Unordered).await.unwrap();
    zookeeper.restart().await.unwrap();
    let r = name("r");
    let renewed = || locks.renew(&r, &lock.ownership, secs(60));
    // The first request may meet the end of the old connection.
    match renewed().await {
        Ok(token) => assert_eq!(token, Some(lock.token)),
        Err(BackendError::Unavailable(_)) => assert_eq!(renewed().await.unwrap(), Some(lock.token)),
        other => panic!("{other:?}"),
    }
    timeout(SOON, wakeups.next()).await.expect("a lost watch notifies");
    assert!(
        client(&zookeeper.url()).release(&name("r"), &lock.ownership.holder, None).await.unwrap()
    );
    timeout(SOON, wakeups.next()).await.expect("the watch is made again");
}

//! Members whose sessions are shorter than those of the locks.

use std::time::Duration;

use fence::Holder;
use lock_client::{
    Locks, Order,
    backend::{Backend, BackendError},
    zookeeper,
};
use testbed::{Proxy, ZooKeeper, proxy::Verdict, wait::until_async};
use tokio::time::{sleep, timeout};

use super::{
    service::{SOON, acquired, attempt, busy, client, held, release, secs, until_free},
    strike::{CONNECT, strike},
};
use crate::names::name;

/// The longest session of the members here, which is shorter than a minute.
const LONGEST: Duration = Duration::from_secs(2);

/// Waits until a server that was restarted answers.
async fn until_back(locks: &zookeeper::ZooKeeper) {
    let is_back = async || Ok(locks.status(&name("r")).await.is_ok());
    until_async(SOON, is_back).await.unwrap();
}

fn invalid<T: std::fmt::Debug>(answer: Result<T, BackendError>) -> String {
    match answer {
        Err(BackendError::Invalid(reason)) => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Such a server would shorten the session if a client went on with it.
#[tokio::test]
async fn renewal_at_a_server_with_a_lower_limit_changes_nothing() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    zookeeper.restart().await.unwrap();
    until_back(&locks).await;
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await.unwrap();
    assert_eq!(renewed, Some(lock.token), "the control");
    zookeeper.limit_sessions(0, LONGEST);
    zookeeper.restart().await.unwrap();
    until_back(&locks).await;
    for _ in 0..2 {
        invalid(locks.renew(&name("r"), &lock.ownership, secs(60)).await);
    }
    sleep(3 * LONGEST).await;
    let held = client(&zookeeper.url()).status(&name("r")).await.unwrap().held.unwrap();
    assert_eq!(held.ownership, lock.ownership);
    assert!(release(&locks, &lock).await);
}

/// Otherwise, the session would end soon, and the lease at its old deadline: nothing reports it.
#[tokio::test]
async fn lost_reply_of_a_server_with_a_lower_limit_shortens_no_session() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    let direct = client(&zookeeper.url());
    let lock = acquired(&direct, &name("r"), secs(60)).await;
    zookeeper.limit_sessions(0, LONGEST);
    zookeeper.restart().await.unwrap();
    until_back(&direct).await;
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let locks = client(&proxy.url("zookeeper")).answer_within(Duration::from_secs(1));
    until_back(&locks).await;
    strike(&proxy, CONNECT, 0, Verdict::DropReply);
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
    assert!(matches!(renewed, Err(BackendError::Unavailable(_))), "{renewed:?}");
    assert!(proxy.has_struck());
    sleep(3 * LONGEST).await;
    busy(attempt(&direct, &Holder::random(), Order::Unordered).await);
}

/// The address leads to another member, of which the client does not know.
#[tokio::test]
async fn session_that_a_renewal_shortens_ends_all_its_leases() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let leader = zookeeper.leader_among(&[0, 1, 2]).await.unwrap();
    let (near, short) = ((leader + 1) % 3, (leader + 2) % 3);
    let proxy = Proxy::start(zookeeper.address(near)).await.unwrap();
    let locks = client(&proxy.url("zookeeper"));
    let (r, other) = (name("r"), name("other"));
    let lock = acquired(&locks, &r, secs(30)).await;
    let second = acquired(&locks, &other, secs(30)).await;
    zookeeper.limit_sessions(short, LONGEST);
    zookeeper.process(short).kill().unwrap();
    zookeeper.launch_again(short).unwrap();
    until_back(&client(&format!("zookeeper://{}", zookeeper.address(short)))).await;
    let renewal = async || locks.renew(&r, &lock.ownership, secs(30)).await.unwrap();
    assert_eq!(renewal().await, Some(lock.token), "the control");
    proxy.switch_to(zookeeper.address(short));
    assert_eq!(renewal().await, None);
    // A new connection would only show that this member has no sessions of the time.
    proxy.cut();
    proxy.mend();
    let renewed = locks.renew(&other, &second.ownership, secs(30)).await;
    assert_eq!(renewed.unwrap(), None, "it was of the same session");
    until_free(&client(&zookeeper.url())).await;
}

#[tokio::test]
async fn lease_ends_when_the_only_server_has_a_lower_limit() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    let locks = Locks::new(client(&zookeeper.url()));
    let lease = locks.acquire(&name("r"), secs(6)).await.unwrap();
    zookeeper.limit_sessions(0, LONGEST);
    zookeeper.restart().await.unwrap();
    timeout(SOON, lease.lost()).await.unwrap();
    assert!(lease.token().is_err());
}

/// The next member gives the session its full time again.
#[tokio::test]
async fn renewal_continues_at_a_member_that_keeps_the_time() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let short = (zookeeper.leader_among(&[0, 1, 2]).await.unwrap() + 1) % 3;
    let other = (short + 1) % 3;
    let elsewhere = client(&format!("zookeeper://{}", zookeeper.address(other)));
    let lock = acquired(&elsewhere, &name("r"), secs(30)).await;
    zookeeper.limit_sessions(short, LONGEST);
    zookeeper.process(short).kill().unwrap();
    zookeeper.launch_again(short).unwrap();
    let first = client(&format!("zookeeper://{}", zookeeper.address(short)));
    until_back(&first).await;
    let both = [short, other].map(|number| zookeeper.address(number).to_string()).join(",");
    let locks = client(&format!("zookeeper://{both}"));
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(30)).await;
    assert_eq!(renewed.unwrap(), Some(lock.token));
    sleep(3 * LONGEST).await;
    busy(attempt(&elsewhere, &Holder::random(), Order::Unordered).await);
    let alone = first.renew(&name("r"), &lock.ownership, secs(30)).await;
    assert!(invalid(alone).contains("2000 ms"), "the control: the short member alone");
    // Without an answer of the other member, nobody knows.
    let proxy = Proxy::start(zookeeper.address(other)).await.unwrap();
    let url = format!("zookeeper://{},{}", zookeeper.address(short), proxy.address());
    let locks = client(&url);
    strike(&proxy, CONNECT, 0, Verdict::Drop);
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(30)).await;
    renewed.expect_err("the other member does not answer");
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(30)).await;
    assert_eq!(renewed.unwrap(), Some(lock.token));
}

#[tokio::test]
async fn repeated_attempt_is_invalid_and_a_release_is_not() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let holder = Holder::random();
    let lock = held(attempt(&locks, &holder, Order::Unordered).await);
    zookeeper.limit_sessions(0, LONGEST);
    zookeeper.restart().await.unwrap();
    until_back(&locks).await;
    let reason = invalid(attempt(&locks, &holder, Order::Unordered).await);
    assert!(reason.contains("2000 ms") && reason.contains("60000 ms"), "{reason}");
    assert!(release(&locks, &lock).await);
}

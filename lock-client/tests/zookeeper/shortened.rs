//! Members whose sessions are shorter than those of the locks.

use std::time::Duration;

use fence::{Holder, Token};
use lock_client::{
    Locks, Order,
    backend::{Backend, BackendError},
    zookeeper,
};
use testbed::{ZooKeeper, wait::until_async};
use tokio::time::{sleep, timeout};

use super::service::{
    Held, SOON, acquired, attempt, busy, client, held, release, secs, until_free,
};
use crate::names::name;

/// The longest session of the members here, which is shorter than a minute.
const LONGEST: Duration = Duration::from_secs(2);

/// Waits until a server that was restarted answers.
async fn until_back(locks: &zookeeper::ZooKeeper) {
    let is_back = async || Ok(locks.status(&name("r")).await.is_ok());
    until_async(SOON, is_back).await.unwrap();
}

/// Renews `r` for a minute.
async fn renewed(locks: &zookeeper::ZooKeeper, lock: &Held) -> Option<Token> {
    until_back(locks).await;
    locks.renew(&name("r"), &lock.ownership, secs(60)).await.unwrap()
}

/// Such a server shortens the session when a client goes on with it. So the lease must end at once.
#[tokio::test]
async fn renewal_that_shortens_the_session_is_a_lost_lease() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    zookeeper.restart().await.unwrap();
    assert_eq!(renewed(&locks, &lock).await, Some(lock.token), "the control");
    zookeeper.limit_sessions(0, LONGEST);
    zookeeper.restart().await.unwrap();
    assert_eq!(renewed(&locks, &lock).await, None);
    until_free(&locks).await;
}

#[tokio::test]
async fn lease_is_lost_when_the_only_server_shortens_its_session() {
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
    // The control: the short member alone.
    assert_eq!(first.renew(&name("r"), &lock.ownership, secs(30)).await.unwrap(), None);
    until_free(&elsewhere).await;
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
    match attempt(&locks, &holder, Order::Unordered).await {
        Err(BackendError::Invalid(reason)) => {
            let reason = reason.to_string();
            assert!(reason.contains("2000 ms") && reason.contains("60000 ms"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(release(&locks, &lock).await);
}

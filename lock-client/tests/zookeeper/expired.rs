//! Members that report the end of a session which lives at others.

use std::time::Duration;

use lock_client::{
    Order,
    backend::{Backend, BackendError},
};
use testbed::{Proxy, ZooKeeper, proxy::Verdict, wait::until_async};

use super::{
    service::{SOON, acquired, attempt, busy, client, release, secs},
    strike::{CONNECT, strike},
};
use crate::names::name;

/// A leader that was replaced reports so, too, until it learns of it. Here it is a member of another
/// ensemble, which knows none of the sessions.
#[tokio::test]
async fn end_of_a_session_is_not_believed_while_its_node_exists() {
    let (zookeeper, other) =
        (ZooKeeper::start_cluster().await.unwrap(), ZooKeeper::start().await.unwrap());
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let url = format!("zookeeper://{},{}", proxy.address(), other.address(0));
    let locks = client(&url).answer_within(Duration::from_secs(2));
    let direct = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    for _ in 0..2 {
        // So the other member is asked next.
        strike(&proxy, CONNECT, 0, Verdict::Drop);
        let r = name("r");
        let is_renewed = async || match locks.renew(&r, &lock.ownership, secs(60)).await {
            // The end that one member reports counts for less than the silence of the other.
            Err(BackendError::Unavailable(_)) => Ok(false),
            renewed => {
                assert_eq!(renewed.unwrap(), Some(lock.token));
                Ok(true)
            }
        };
        until_async(SOON, is_renewed).await.unwrap();
        assert!(proxy.has_struck());
    }
    assert!(release(&locks, &lock).await);
    let left = direct.status(&name("r")).await.unwrap().held;
    assert!(left.is_none(), "{left:?}");
    // The control: a lock that is gone.
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    assert!(release(&direct, &lock).await);
    assert_eq!(locks.renew(&name("r"), &lock.ownership, secs(60)).await.unwrap(), None);
}

/// A leader that was just replaced may show a lock as it was before the grant. Here it is a member of
/// another ensemble, where the holder waits.
#[tokio::test]
async fn released_lock_is_reported_as_released_whatever_an_old_leader_shows() {
    let (zookeeper, other) = (ZooKeeper::start().await.unwrap(), ZooKeeper::start().await.unwrap());
    let (proxy, outdated) = (Proxy::start(other.address(0)).await.unwrap(), client(&other.url()));
    let url = format!("zookeeper://{},{}", proxy.address(), zookeeper.address(0));
    let locks = client(&url).answer_within(Duration::from_secs(2));
    // It reads there from now on.
    locks.status(&name("r")).await.unwrap();
    strike(&proxy, CONNECT, 0, Verdict::Drop);
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    assert!(proxy.has_struck());
    let direct = client(&zookeeper.url());
    assert_eq!(direct.status(&name("r")).await.unwrap().held.unwrap().token, lock.token);
    acquired(&outdated, &name("r"), secs(60)).await;
    busy(attempt(&outdated, &lock.ownership.holder, Order::Fair).await);
    assert!(release(&locks, &lock).await);
    assert_eq!(direct.status(&name("r")).await.unwrap().held, None);
    assert!(!release(&locks, &lock).await, "the control: it is released");
}

/// Nothing distinguishes it from another ensemble at the same address. No client gets the lock's old
/// session there, so the lease is lost.
#[tokio::test]
async fn lock_is_lost_with_the_data_of_its_zookeeper() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    zookeeper.restart_empty().await.unwrap();
    let locks = client(&zookeeper.url());
    assert_eq!(locks.renew(&name("r"), &lock.ownership, secs(60)).await.unwrap(), None);
    assert!(!release(&locks, &lock).await);
    acquired(&locks, &name("r"), secs(60)).await;
}

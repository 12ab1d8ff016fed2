//! Locks that another client, which shares no memory with the first, renews, reissues and releases.

use std::time::Duration;

use fence::Holder;
use lock_client::{
    Locks, Order, Released, RenewError, Terms,
    backend::{Backend, BackendError},
};
use testbed::ZooKeeper;
use tokio::time::{Instant, sleep};

use super::service::{acquired, attempt, busy, client, held, release, secs, until_free};
use crate::{lock_service::ttl, names::name};

#[tokio::test]
async fn detached_lock_is_adopted_with_its_holder_and_grant_alone() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let [first, second] = [(); 2].map(|()| Locks::new(client(&zookeeper.url())));
    let lease = first.acquire(&name("r"), Terms::new(secs(6)).detachable()).await.unwrap();
    let token = lease.token().unwrap();
    let detached = lease.detach().unwrap();
    drop(first);
    let adopted = second.adopt(detached.clone(), secs(6)).await.unwrap();
    assert_eq!(adopted.token().unwrap(), token);
    sleep(Duration::from_secs(9)).await;
    assert_eq!(adopted.token().unwrap(), token, "it renews the session of the first");
    assert_eq!(adopted.release().await.unwrap(), Released::Released);
    let gone = second.adopt(detached, secs(6)).await;
    assert!(matches!(gone, Err(RenewError::Lost(_))), "{gone:?}");
}

#[tokio::test]
async fn adoption_for_a_ttl_that_zookeeper_does_not_have_is_invalid_and_changes_nothing() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = Locks::new(client(&zookeeper.url()));
    let lease = locks.acquire(&name("r"), Terms::new(secs(60)).detachable()).await.unwrap();
    let token = lease.token().unwrap();
    let detached = lease.detach().unwrap();
    for (millis, expected) in [
        (601_000, "a ttl of 601000 ms is too long; the longest session"),
        // The session of the lock lasts longer.
        (999, "a ttl of 999 ms is too short; the shortest session of this ZooKeeper lasts 1000 ms"),
    ] {
        let adopted = locks.adopt(detached.clone(), ttl(millis)).await;
        let Err(RenewError::LockService { source: BackendError::Invalid(reason), .. }) = adopted
        else {
            panic!("{millis}: {adopted:?}");
        };
        assert!(reason.to_string().contains(expected), "{reason}");
    }
    let adopted = locks.adopt(detached, secs(60)).await.unwrap();
    assert_eq!(adopted.token().unwrap(), token, "the control");
    adopted.release().await.unwrap();
}

/// Adopted for longer than its session lasts, for shorter, and for longer again.
#[tokio::test]
async fn lock_that_another_client_has_moved_is_still_the_owners() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(6)).await;
    for seconds in [9, 6, 30] {
        let other = client(&zookeeper.url());
        let renewed = other.renew(&name("r"), &lock.ownership, secs(seconds)).await;
        assert_eq!(renewed.unwrap(), Some(lock.token));
        let renewed = locks.renew(&name("r"), &lock.ownership, secs(6)).await;
        assert_eq!(renewed.unwrap(), Some(lock.token), "it finds its new session");
    }
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(6)).await.unwrap();
    assert_eq!(renewed, Some(lock.token));
    let other = client(&zookeeper.url());
    let reissued = other.reissue(&name("r"), &lock.ownership, lock.token).await.unwrap();
    assert!(reissued > Some(lock.token));
    assert!(release(&other, &lock).await);
    assert!(locks.renew(&name("r"), &lock.ownership, secs(6)).await.unwrap().is_none());
}

/// A detached lock ends with its ttl, although the client that detached it lives.
#[tokio::test]
async fn detached_lock_that_nobody_adopts_expires() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = Locks::new(client(&zookeeper.url()));
    let lease = locks.acquire(&name("r"), Terms::new(secs(2)).detachable()).await.unwrap();
    let begun = Instant::now();
    lease.detach().unwrap();
    until_free(&client(&zookeeper.url())).await;
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn broken_lock_goes_to_the_next_waiter_and_its_owner_is_told() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let (owner, waiters) = (client(&zookeeper.url()), client(&zookeeper.url()));
    let lock = acquired(&owner, &name("r"), secs(60)).await;
    let waiter = Holder::random();
    busy(attempt(&waiters, &waiter, Order::Fair).await);
    let operator = Locks::new(client(&zookeeper.url()));
    assert!(operator.break_lock(&name("r"), lock.token).await.unwrap());
    assert!(!operator.break_lock(&name("r"), lock.token).await.unwrap());
    let next = held(attempt(&waiters, &waiter, Order::Fair).await);
    assert!(next.token > lock.token);
    assert_eq!(owner.renew(&name("r"), &lock.ownership, secs(60)).await.unwrap(), None);
    assert!(!release(&owner, &lock).await);
}

//! Three members: one is killed or paused, or the quorum is lost.

use std::time::Duration;

use fence::Holder;
use lock_client::{
    Locks, Order, Terms,
    backend::{Backend, BackendError},
    etcd,
};
use testbed::{Etcd, wait::until_async};
use tokio::time::{sleep, timeout};

use super::service::{SOON, acquired, attempt, busy, client, release, secs};
use crate::{lock_service::with_causes, names::name};

/// The URL of all members, beginning with this one, which the client asks first.
fn url_from(etcd: &Etcd, first: usize) -> String {
    let addresses: Vec<_> =
        (0..3).map(|number| etcd.address((first + number) % 3).to_string()).collect();
    format!("etcd://{}", addresses.join(","))
}

async fn follower(etcd: &Etcd) -> usize {
    (etcd.leader_among(&[0, 1, 2]).await.unwrap() + 1) % 3
}

#[tokio::test]
async fn lease_goes_on_when_the_leader_is_killed() {
    let mut etcd = Etcd::start_cluster().await.unwrap();
    let leader = etcd.leader_among(&[0, 1, 2]).await.unwrap();
    let locks = Locks::new(etcd::Etcd::open(&url_from(&etcd, leader)).unwrap());
    let ttl = secs(5);
    let lease = locks.acquire(&name("r"), ttl).await.unwrap();
    let token = lease.token().unwrap();
    etcd.process(leader).kill().unwrap();
    let others: Vec<_> = (0..3).filter(|&number| number != leader).collect();
    etcd.leader_among(&others).await.unwrap();
    // An elected leader gives each lease its full time once more. Without renewals, it ends then.
    sleep(ttl.as_duration() * 2 + Duration::from_secs(1)).await;
    assert_eq!(lease.token().unwrap(), token);
    let other = client(&etcd.url());
    busy(attempt(&other, &Holder::random(), Order::Unordered).await);
    lease.release().await.unwrap();
    let next = acquired(&other, &name("r"), secs(60)).await;
    assert!(next.token > token);
}

#[tokio::test]
async fn paused_member_is_left_by_requests_and_watches() {
    let mut etcd = Etcd::start_cluster().await.unwrap();
    let follower = follower(&etcd).await;
    let locks = etcd::Etcd::open(&url_from(&etcd, follower)).unwrap();
    let elsewhere = client(&url_from(&etcd, (follower + 1) % 3));
    let owner = acquired(&elsewhere, &name("r"), secs(60)).await;
    let waiter = Holder::random();
    busy(attempt(&locks, &waiter, Order::Fair).await);
    let wakeups = locks.subscribe(&name("r"), &waiter, Order::Fair).await.unwrap();
    etcd.process(follower).pause().await.unwrap();
    let silent = locks.status(&name("r")).await;
    assert!(matches!(silent, Err(BackendError::Unavailable(_))), "{silent:?}");
    let status = locks.status(&name("r")).await.unwrap();
    assert_eq!(status.held.unwrap().ownership, owner.ownership, "the next member answers");
    assert!(release(&elsewhere, &owner).await);
    timeout(SOON, wakeups.next()).await.expect("the watch has moved");
    etcd.process(follower).resume().unwrap();
}

#[tokio::test]
async fn client_whose_first_member_is_paused_acquires() {
    let mut etcd = Etcd::start_cluster().await.unwrap();
    let follower = follower(&etcd).await;
    etcd.process(follower).pause().await.unwrap();
    let locks = Locks::new(etcd::Etcd::open(&url_from(&etcd, follower)).unwrap());
    let lease = locks.acquire(&name("r"), Terms::new(secs(60)).no_wait()).await.unwrap();
    lease.release().await.unwrap();
    etcd.process(follower).resume().unwrap();
}

#[tokio::test]
async fn client_whose_first_members_are_down_needs_one_try() {
    let mut etcd = Etcd::start_cluster().await.unwrap();
    let follower = follower(&etcd).await;
    let locks = client(&url_from(&etcd, follower));
    etcd.process(follower).kill().unwrap();
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    assert!(release(&locks, &lock).await);
}

/// A learner refuses all that a lock needs.
#[tokio::test]
async fn learner_is_left_at_once() {
    let mut etcd = Etcd::start().await.unwrap();
    let learner = etcd.add_learner().await.unwrap();
    let alone =
        attempt(&client(&format!("etcd://{learner}")), &Holder::random(), Order::Fair).await;
    let refused = with_causes(&alone.unwrap_err());
    assert!(refused.contains("not supported for learner"), "{refused}");
    let locks = client(&format!("etcd://{learner},{}", etcd.address(0)));
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    assert!(release(&locks, &lock).await);
}

#[tokio::test]
async fn lost_quorum_is_unavailable_until_it_is_back() {
    let mut etcd = Etcd::start_cluster().await.unwrap();
    // The surviving member is asked first. It refuses once it has no leader.
    let locks = etcd::Etcd::open(&url_from(&etcd, 2)).unwrap();
    let lock = acquired(&locks, &name("kept"), secs(60)).await;
    for number in [0, 1] {
        etcd.process(number).kill().unwrap();
    }
    let holder = Holder::random();
    for _ in 0..8 {
        for answer in [
            attempt(&locks, &holder, Order::Unordered).await.map(drop),
            locks.renew(&name("kept"), &lock.ownership, secs(60)).await.map(drop),
            locks.reissue(&name("kept"), &lock.ownership, lock.token).await.map(drop),
            locks.release(&name("kept"), &lock.ownership.holder, None).await.map(drop),
            locks.status(&name("kept")).await.map(drop),
            locks.subscribe(&name("kept"), &holder, Order::Fair).await.map(drop),
        ] {
            assert!(matches!(answer, Err(BackendError::Unavailable(_))), "{answer:?}");
        }
    }
    // Each waits for the other, so neither start waits for an answer.
    let (first, second) = (etcd.launch_again(0), etcd.launch_again(1));
    first.and(second).unwrap();
    let is_back = async || Ok(locks.status(&name("r")).await.is_ok());
    until_async(SOON, is_back).await.unwrap();
    // The requests of before have no answer. They may have been carried out.
    let undone = async || Ok(locks.release(&name("r"), &holder, None).await.is_ok());
    until_async(SOON, undone).await.unwrap();
    let next = acquired(&client(&etcd.url()), &name("r"), secs(60)).await;
    assert!(next.token > lock.token);
}

//! Three members: one is killed or paused, or the quorum is lost.

use std::time::Duration;

use fence::Holder;
use lock_client::{
    Locks, Order, Terms,
    backend::{Backend, BackendError},
};
use testbed::wait::{until, until_async};
use tokio::time::{sleep, timeout};

use super::service::{SOON, Service, acquired, attempt, busy, follower, release, secs, url_from};
use crate::names::name;

async fn lease_goes_on_when_the_leader_is_killed<S: Service>() {
    let mut service = S::start_cluster().await;
    let leader = service.leader_among(&[0, 1, 2]).await.unwrap();
    let locks = Locks::new(S::open(&url_from(&service, leader)));
    let lease = locks.acquire(&name("r"), secs(15)).await.unwrap();
    let token = lease.token().unwrap();
    service.process(leader).kill().unwrap();
    let others: Vec<_> = (0..3).filter(|&number| number != leader).collect();
    service.leader_among(&others).await.unwrap();
    let left = lease.remaining();
    until(SOON, || Ok(lease.remaining() > left)).await.expect("it is renewed");
    // The new leader gives each lease its whole time once more.
    sleep(Duration::from_secs(31)).await;
    assert_eq!(lease.token().unwrap(), token);
    let other = S::client(&service.url());
    busy(attempt(&other, &Holder::random(), Order::Unordered).await);
    lease.release().await.unwrap();
    let next = acquired(&other, &name("r"), secs(60)).await;
    assert!(next.token > token);
}

async fn paused_member_is_left_by_requests_and_watches<S: Service>() {
    let mut service = S::start_cluster().await;
    let follower = follower(&service).await;
    let locks = S::client(&url_from(&service, follower));
    let elsewhere = S::client(&url_from(&service, (follower + 1) % 3));
    let owner = acquired(&elsewhere, &name("r"), secs(60)).await;
    let waiter = Holder::random();
    busy(attempt(&locks, &waiter, Order::Fair).await);
    let wakeups = locks.subscribe(&name("r"), &waiter, Order::Fair).await.unwrap();
    service.process(follower).pause().await.unwrap();
    let silent = locks.status(&name("r")).await;
    assert!(matches!(silent, Err(BackendError::Unavailable(_))), "{silent:?}");
    let status = locks.status(&name("r")).await.unwrap();
    assert_eq!(status.held.unwrap().ownership, owner.ownership, "the next member answers");
    assert!(release(&elsewhere, &owner).await);
    timeout(SOON, wakeups.next()).await.expect("the watch has moved");
    service.process(follower).resume().unwrap();
}

async fn client_whose_first_member_is_paused_acquires<S: Service>() {
    let mut service = S::start_cluster().await;
    let follower = follower(&service).await;
    service.process(follower).pause().await.unwrap();
    let locks = Locks::new(S::client(&url_from(&service, follower)));
    let lease = locks.acquire(&name("r"), Terms::new(secs(60)).no_wait()).await.unwrap();
    lease.release().await.unwrap();
    service.process(follower).resume().unwrap();
}

async fn client_whose_first_members_are_down_needs_one_try<S: Service>() {
    let mut service = S::start_cluster().await;
    let follower = follower(&service).await;
    let locks = S::client(&url_from(&service, follower));
    service.process(follower).kill().unwrap();
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    assert!(release(&locks, &lock).await);
}

async fn lost_quorum_is_unavailable_until_it_is_back<S: Service>() {
    let mut service = S::start_cluster().await;
    // The surviving member is asked first. It rejects once it has no leader.
    let locks = S::open(&url_from(&service, 2));
    let lock = acquired(&S::client(&service.url()), &name("kept"), secs(60)).await;
    until_async(SOON, async || Ok(locks.status(&name("kept")).await.is_ok())).await.unwrap();
    for number in [0, 1] {
        service.process(number).kill().unwrap();
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
    let (first, second) = (service.launch_again(0), service.launch_again(1));
    first.and(second).unwrap();
    let is_back = async || Ok(locks.status(&name("r")).await.is_ok());
    until_async(SOON, is_back).await.unwrap();
    // The requests of before have no answer. They may have been carried out.
    let undone = async || Ok(locks.release(&name("r"), &holder, None).await.is_ok());
    until_async(SOON, undone).await.unwrap();
    let next = acquired(&S::client(&service.url()), &name("r"), secs(60)).await;
    assert!(next.token > lock.token);
}

test_each_service! {
    lease_goes_on_when_the_leader_is_killed,
    paused_member_is_left_by_requests_and_watches,
    client_whose_first_member_is_paused_acquires,
    client_whose_first_members_are_down_needs_one_try,
    lost_quorum_is_unavailable_until_it_is_back,
}

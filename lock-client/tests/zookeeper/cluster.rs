//! Three members: one is killed or paused, or the quorum is lost.

use std::time::Duration;

use fence::Holder;
use lock_client::{
    Locks, Order, Terms,
    backend::{Backend, BackendError},
    zookeeper,
};
use testbed::{ZooKeeper, wait::until_async};
use tokio::time::{sleep, timeout};

use super::service::{SOON, acquired, attempt, busy, client, release, secs};
use crate::names::name;

/// The URL of all members, beginning with this one, which the client asks first.
fn url_from(zookeeper: &ZooKeeper, first: usize) -> String {
    let addresses: Vec<_> =
        (0..3).map(|number| zookeeper.address((first + number) % 3).to_string()).collect();
    format!("zookeeper://{}", addresses.join(","))
}

async fn follower(zookeeper: &ZooKeeper) -> usize {
    (zookeeper.leader_among(&[0, 1, 2]).await.unwrap() + 1) % 3
}

#[tokio::test]
async fn lease_goes_on_when_the_leader_is_killed() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let leader = zookeeper.leader_among(&[0, 1, 2]).await.unwrap();
    let locks = Locks::new(zookeeper::ZooKeeper::open(&url_from(&zookeeper, leader)).unwrap());
    let ttl = secs(5);
    let lease = locks.acquire(&name("r"), ttl).await.unwrap();
    let token = lease.token().unwrap();
    zookeeper.process(leader).kill().unwrap();
    let others: Vec<_> = (0..3).filter(|&number| number != leader).collect();
    zookeeper.leader_among(&others).await.unwrap();
    // An elected leader gives each lease its full time once more. Without renewals, it ends then.
    sleep(ttl.as_duration() * 2 + Duration::from_secs(1)).await;
    assert_eq!(lease.token().unwrap(), token);
    let other = client(&zookeeper.url());
    busy(attempt(&other, &Holder::random(), Order::Unordered).await);
    lease.release().await.unwrap();
    let next = acquired(&other, &name("r"), secs(60)).await;
    assert!(next.token > token);
}

#[tokio::test]
async fn paused_member_is_left_by_requests_and_watches() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let follower = follower(&zookeeper).await;
    let locks = zookeeper::ZooKeeper::open(&url_from(&zookeeper, follower)).unwrap();
    let elsewhere = client(&url_from(&zookeeper, (follower + 1) % 3));
    let owner = acquired(&elsewhere, &name("r"), secs(60)).await;
    let waiter = Holder::random();
    busy(attempt(&locks, &waiter, Order::Fair).await);
    let wakeups = locks.subscribe(&name("r"), &waiter, Order::Fair).await.unwrap();
    zookeeper.process(follower).pause().await.unwrap();
    let silent = locks.status(&name("r")).await;
    assert!(matches!(silent, Err(BackendError::Unavailable(_))), "{silent:?}");
    let status = locks.status(&name("r")).await.unwrap();
    assert_eq!(status.held.unwrap().ownership, owner.ownership, "the next member answers");
    assert!(release(&elsewhere, &owner).await);
    timeout(SOON, wakeups.next()).await.expect("the watch has moved");
    zookeeper.process(follower).resume().unwrap();
}

#[tokio::test]
async fn client_whose_first_member_is_paused_acquires() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let follower = follower(&zookeeper).await;
    zookeeper.process(follower).pause().await.unwrap();
    let locks = Locks::new(zookeeper::ZooKeeper::open(&url_from(&zookeeper, follower)).unwrap());
    let lease = locks.acquire(&name("r"), Terms::new(secs(60)).no_wait()).await.unwrap();
    lease.release().await.unwrap();
    zookeeper.process(follower).resume().unwrap();
}

#[tokio::test]
async fn client_whose_first_members_are_down_needs_one_try() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let follower = follower(&zookeeper).await;
    let locks = client(&url_from(&zookeeper, follower));
    zookeeper.process(follower).kill().unwrap();
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    assert!(release(&locks, &lock).await);
}

#[tokio::test]
async fn lost_quorum_is_unavailable_until_it_is_back() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    // The surviving member is asked first. It refuses once it has no leader.
    let locks = zookeeper::ZooKeeper::open(&url_from(&zookeeper, 2)).unwrap();
    let lock = acquired(&locks, &name("kept"), secs(60)).await;
    for number in [0, 1] {
        zookeeper.process(number).kill().unwrap();
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
    let (first, second) = (zookeeper.launch_again(0), zookeeper.launch_again(1));
    first.and(second).unwrap();
    let is_back = async || Ok(locks.status(&name("r")).await.is_ok());
    until_async(SOON, is_back).await.unwrap();
    // The requests of before have no answer. They may have been carried out.
    let undone = async || Ok(locks.release(&name("r"), &holder, None).await.is_ok());
    until_async(SOON, undone).await.unwrap();
    let next = acquired(&client(&zookeeper.url()), &name("r"), secs(60)).await;
    assert!(next.token > lock.token);
}

/// An elected leader gives each session the time that it was made with.
#[tokio::test]
async fn renewal_for_longer_outlives_an_election() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let leader = zookeeper.leader_among(&[0, 1, 2]).await.unwrap();
    let locks = client(&url_from(&zookeeper, leader));
    let lock = acquired(&locks, &name("r"), secs(2)).await;
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await.unwrap();
    assert_eq!(renewed, Some(lock.token));
    zookeeper.process(leader).kill().unwrap();
    let others: Vec<_> = (0..3).filter(|&number| number != leader).collect();
    let next = zookeeper.leader_among(&others).await.unwrap();
    sleep(Duration::from_secs(6)).await;
    let elsewhere = client(&format!("zookeeper://{}", zookeeper.address(next)));
    let held = elsewhere.status(&name("r")).await.unwrap().held;
    assert_eq!(held.map(|held| held.ownership), Some(lock.ownership));
}

/// The leader answers for about a second after it has lost its followers. It sets a session's full time,
/// and answers reads, but another leader would not know of it.
#[tokio::test]
async fn leader_that_lost_its_followers_renews_nothing() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let leader = zookeeper.leader_among(&[0, 1, 2]).await.unwrap();
    let locks = zookeeper::ZooKeeper::open(&format!("zookeeper://{}", zookeeper.address(leader)));
    let locks = locks.unwrap();
    let lock = acquired(&client(&zookeeper.url()), &name("r"), secs(60)).await;
    // The client has connected, and finds the session of the owner.
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await.unwrap();
    assert_eq!(renewed, Some(lock.token));
    for follower in (0..3).filter(|&number| number != leader) {
        zookeeper.process(follower).pause().await.unwrap();
    }
    let status = locks.status(&name("r")).await;
    assert!(status.is_ok(), "the control: it answers reads: {status:?}");
    for _ in 0..3 {
        let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
        assert!(matches!(renewed, Err(BackendError::Unavailable(_))), "{renewed:?}");
    }
    for follower in (0..3).filter(|&number| number != leader) {
        zookeeper.process(follower).resume().unwrap();
    }
    let renewed_again = async || {
        let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
        Ok(renewed.is_ok_and(|token| token == Some(lock.token)))
    };
    until_async(SOON, renewed_again).await.unwrap();
}

/// A follower that was paused is behind when it goes on. A client that asks it sees a release that
/// another member has answered before.
#[tokio::test]
async fn member_that_is_behind_shows_no_released_lock() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let follower = follower(&zookeeper).await;
    let behind = client(&format!("zookeeper://{}", zookeeper.address(follower)));
    let elsewhere = client(&url_from(&zookeeper, (follower + 1) % 3));
    let mut last = None;
    for _ in 0..10 {
        let lock = acquired(&elsewhere, &name("r"), secs(60)).await;
        assert!(last < Some(lock.token));
        last = Some(lock.token);
        behind.status(&name("r")).await.unwrap();
        zookeeper.process(follower).pause().await.unwrap();
        assert!(release(&elsewhere, &lock).await);
        zookeeper.process(follower).resume().unwrap();
        let next = acquired(&behind, &name("r"), secs(60)).await;
        assert!(last < Some(next.token));
        last = Some(next.token);
        assert!(release(&behind, &next).await);
    }
}

/// A leader that was paused, and replaced, answers reads for a moment before it learns of it.
#[tokio::test]
async fn replaced_leader_shows_no_lost_ownership() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    for _ in 0..5 {
        let leader = zookeeper.leader_among(&[0, 1, 2]).await.unwrap();
        let others: Vec<_> = (0..3).filter(|&number| number != leader).collect();
        let behind = client(&url_from(&zookeeper, leader)).answer_within(SOON);
        behind.status(&name("kept")).await.unwrap();
        let elsewhere = client(&url_from(&zookeeper, others[0]));
        zookeeper.process(leader).pause().await.unwrap();
        zookeeper.leader_among(&others).await.unwrap();
        let is_back = async || Ok(elsewhere.status(&name("kept")).await.is_ok());
        until_async(SOON, is_back).await.unwrap();
        let (kept, freed) = (name("kept"), name("freed"));
        let kept_lock = acquired(&elsewhere, &kept, secs(60)).await;
        let freed_lock = acquired(&elsewhere, &freed, secs(60)).await;
        let (renewed, reissued, released, ()) = tokio::join!(
            behind.renew(&kept, &kept_lock.ownership, secs(60)),
            behind.reissue(&kept, &kept_lock.ownership, kept_lock.token),
            behind.release(&freed, &freed_lock.ownership.holder, None),
            // The requests are waiting when the member goes on.
            async {
                sleep(Duration::from_millis(300)).await;
                zookeeper.process(leader).resume().unwrap();
            }
        );
        assert!(!matches!(renewed, Ok(None)), "{renewed:?}");
        assert!(!matches!(reissued, Ok(None)), "{reissued:?}");
        assert!(!matches!(released, Ok(false)), "{released:?}");
        for (name, lock) in [(kept, kept_lock), (freed, freed_lock)] {
            elsewhere.release(&name, &lock.ownership.holder, None).await.unwrap();
        }
    }
}

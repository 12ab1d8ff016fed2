//! Three members: sessions over elections, and members that are behind.

use std::{pin::pin, sync::atomic::Ordering, time::Duration};

use fence::Holder;
use lock_client::{
    Order,
    backend::{Backend, BackendError},
    zookeeper,
};
use testbed::{
    Proxy, ZooKeeper,
    wait::{until, until_async},
};
use tokio::{
    join, select,
    time::{sleep, timeout},
};

use super::{
    service::{Held, SOON, acquired, attempt, client, follower, held, release, secs, url_from},
    strike::{SYNC, count},
};
use crate::names::name;

/// An elected leader gives each session the time that it was made with.
#[tokio::test]
async fn renewal_for_longer_outlives_an_election() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let leader = zookeeper.leader_among(&[0, 1, 2]).await.unwrap();
    let locks = client(&url_from(&zookeeper, leader));
    let lock = acquired(&locks, &name("r"), secs(4)).await;
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await.unwrap();
    assert_eq!(renewed, Some(lock.token));
    zookeeper.process(leader).kill().unwrap();
    let others: Vec<_> = (0..3).filter(|&number| number != leader).collect();
    let next = zookeeper.leader_among(&others).await.unwrap();
    sleep(Duration::from_secs(8)).await;
    let elsewhere = client(&format!("zookeeper://{}", zookeeper.address(next)));
    let held = elsewhere.status(&name("r")).await.unwrap().held;
    assert_eq!(held.map(|held| held.ownership), Some(lock.ownership));
}

/// The leader answers for about a second after it has lost its followers. It sets a session's full time,
/// and answers reads, but another leader would not know of it.
#[tokio::test]
async fn leader_that_lost_its_followers_renews_nothing() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let lock = acquired(&client(&zookeeper.url()), &name("r"), secs(60)).await;
    let mut answered = false;
    // The leader may be too late to answer, and is then another one in the next round.
    for _ in 0..10 {
        let leader = zookeeper.leader_among(&[0, 1, 2]).await.unwrap();
        let address = zookeeper.address(leader);
        let locks = zookeeper::ZooKeeper::open(&format!("zookeeper://{address}")).unwrap();
        let is_renewed = async || {
            let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
            Ok(renewed.is_ok_and(|token| token == Some(lock.token)))
        };
        // The client has connected, and finds the session of the owner.
        until_async(SOON, is_renewed).await.unwrap();
        for follower in (0..3).filter(|&number| number != leader) {
            zookeeper.process(follower).pause().await.unwrap();
        }
        answered = locks.status(&name("r")).await.is_ok();
        for _ in 0..3 {
            let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
            assert!(matches!(renewed, Err(BackendError::Unavailable(_))), "{renewed:?}");
        }
        for follower in (0..3).filter(|&number| number != leader) {
            zookeeper.process(follower).resume().unwrap();
        }
        until_async(SOON, is_renewed).await.unwrap();
        if answered {
            break;
        }
    }
    assert!(answered, "the control: it answers reads");
}

/// Acquires `r`. A member that was paused for too long answers nothing until it has a leader again.
async fn acquired_in_the_end(locks: &zookeeper::ZooKeeper) -> Held {
    let holder = Holder::random();
    let acquiring = async {
        loop {
            match attempt(locks, &holder, Order::Unordered).await {
                Err(BackendError::Unavailable(_)) => {}
                answer => return held(answer),
            }
        }
    };
    timeout(SOON, acquiring).await.unwrap()
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
        let next = acquired_in_the_end(&behind).await;
        assert!(last < Some(next.token));
        last = Some(next.token);
        assert!(release(&behind, &next).await);
    }
}

async fn until_answered(locks: &zookeeper::ZooKeeper) {
    let is_answered = async || Ok(locks.status(&name("kept")).await.is_ok());
    until_async(SOON, is_answered).await.unwrap();
}

/// A leader that was paused, and replaced, answers reads for a moment before it learns of it.
#[tokio::test]
async fn replaced_leader_shows_no_lost_ownership() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let mut asked = 0;
    for _ in 0..10 {
        let leader = zookeeper.leader_among(&[0, 1, 2]).await.unwrap();
        let others: Vec<_> = (0..3).filter(|&number| number != leader).collect();
        let proxy = Proxy::start(zookeeper.address(leader)).await.unwrap();
        let [second, third] = [0, 1].map(|number| zookeeper.address(others[number]));
        let url = format!("zookeeper://{},{second},{third}", proxy.address());
        let behind = client(&url).answer_within(SOON);
        // A leader may close the connections that it has had as a follower.
        until_answered(&behind).await;
        let elsewhere = client(&url_from(&zookeeper, others[0]));
        zookeeper.process(leader).pause().await.unwrap();
        zookeeper.leader_among(&others).await.unwrap();
        until_answered(&elsewhere).await;
        let (kept, freed) = (name("kept"), name("freed"));
        let kept_lock = acquired(&elsewhere, &kept, secs(60)).await;
        let freed_lock = acquired(&elsewhere, &freed, secs(60)).await;
        let looks = count(&proxy, SYNC);
        let (renewed, reissued, released) = {
            let requests = async {
                join!(
                    behind.renew(&kept, &kept_lock.ownership, secs(60)),
                    behind.reissue(&kept, &kept_lock.ownership, kept_lock.token),
                    behind.release(&freed, &freed_lock.ownership.holder, None),
                )
            };
            let mut requests = pin!(requests);
            select! {
                // The election took so long that the client has left its silent member.
                answers = &mut requests => answers,
                waiting = until(SOON, || Ok(looks.load(Ordering::SeqCst) == 3)) => {
                    waiting.unwrap();
                    asked += 1;
                    zookeeper.process(leader).resume().unwrap();
                    requests.await
                }
            }
        };
        assert!(!matches!(renewed, Ok(None)), "{renewed:?}");
        assert!(!matches!(reissued, Ok(None)), "{reissued:?}");
        assert!(!matches!(released, Ok(false)), "{released:?}");
        zookeeper.process(leader).resume().unwrap();
        for (name, lock) in [(kept, kept_lock), (freed, freed_lock)] {
            elsewhere.release(&name, &lock.ownership.holder, None).await.unwrap();
        }
        if asked == 5 {
            return;
        }
    }
    assert!(asked > 0, "the client has left the replaced leader each time");
}

//! Requests whose replies are lost, and requests that arrive late.

use std::{pin::pin, sync::atomic::Ordering, time::Duration};

use fence::Holder;
use lock_client::{
    Order,
    backend::{Backend, BackendError},
};
use testbed::{
    Proxy, ZooKeeper,
    proxy::Verdict,
    wait::{until, until_async},
};
use tokio::time::sleep;

use super::{
    service::{SOON, acquired, attempt, busy, client, held, own_node, release, secs, until_free},
    strike::{CONNECT, CREATE, DELETE, MULTI, MULTI_READ, SYNC, count, strike},
};
use crate::names::name;

/// A ZooKeeper in which the container of the lock exists. A node that is nobody's keeps it from being
/// deleted, so that an attempt makes one node only.
async fn with_a_container() -> ZooKeeper {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let direct = client(&zookeeper.url());
    let lock = acquired(&direct, &name("r"), secs(60)).await;
    zookeeper.cli(&["create", "/fenced/queues/r/nobody"]).await.unwrap();
    assert!(release(&direct, &lock).await);
    zookeeper
}

/// A proxy before a ZooKeeper, and a client that has connected through it already.
async fn proxied(zookeeper: &ZooKeeper) -> (Proxy, lock_client::zookeeper::ZooKeeper) {
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let locks = client(&proxy.url("zookeeper"));
    locks.status(&name("r")).await.unwrap();
    (proxy, locks)
}

async fn behind_a_proxy() -> (ZooKeeper, Proxy, lock_client::zookeeper::ZooKeeper) {
    let zookeeper = with_a_container().await;
    let (proxy, locks) = proxied(&zookeeper).await;
    (zookeeper, proxy, locks)
}

fn unavailable<T: std::fmt::Debug>(answer: Result<T, BackendError>) {
    assert!(matches!(answer, Err(BackendError::Unavailable(_))), "{answer:?}");
}

#[tokio::test]
async fn attempt_without_an_answer_is_repeated_with_the_same_token() {
    let zookeeper = with_a_container().await;
    let direct = client(&zookeeper.url());
    // The client has a connection that reads. So a try in no order looks first.
    let unordered = &[(SYNC, 0), (CONNECT, 0), (CREATE, 0), (MULTI_READ, 1)][..];
    let fair = &[(CONNECT, 0), (CREATE, 0), (MULTI_READ, 0)][..];
    for (order, requests) in [(Order::Unordered, unordered), (Order::Fair, fair)] {
        for verdict in [Verdict::Drop, Verdict::DropReply] {
            for &(lost, passing) in requests {
                let ((proxy, locks), holder) = (proxied(&zookeeper).await, Holder::random());
                let has_struck = strike(&proxy, lost, passing, verdict);
                unavailable(attempt(&locks, &holder, order).await);
                assert!(has_struck.load(Ordering::SeqCst));
                let before = direct.status(&name("r")).await.unwrap().held;
                // The look is sent behind the node, so both may be lost at once.
                if (lost, verdict) != (MULTI_READ, Verdict::Drop) {
                    let was_created =
                        verdict == Verdict::DropReply && lost != SYNC && lost != CONNECT;
                    assert_eq!(before.is_some(), was_created, "{lost} {verdict:?}");
                }
                let lock = held(attempt(&locks, &holder, order).await);
                if let Some(before) = before {
                    assert_eq!(
                        (before.token, before.ownership),
                        (lock.token, lock.ownership.clone())
                    );
                }
                assert_eq!(direct.status(&name("r")).await.unwrap().queued, 0, "no orphan is left");
                assert!(release(&locks, &lock).await);
                let next = acquired(&direct, &name("r"), secs(60)).await;
                assert!(release(&direct, &next).await);
            }
        }
    }
}

#[tokio::test]
async fn renewal_reissue_and_release_without_an_answer_are_repeated() {
    let (zookeeper, proxy, locks) = behind_a_proxy().await;
    let direct = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    // The proof and the look are repeated at once.
    for lost in [MULTI, MULTI_READ] {
        strike(&proxy, lost, 0, Verdict::DropReply);
        let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
        assert_eq!(renewed.unwrap(), Some(lock.token));
        assert!(proxy.has_struck());
    }
    // A renewal for longer begins with the move.
    strike(&proxy, MULTI, 0, Verdict::DropReply);
    unavailable(locks.renew(&name("r"), &lock.ownership, secs(90)).await);
    let node = own_node(&zookeeper).await;
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(90)).await;
    assert_eq!(renewed.unwrap(), Some(lock.token));
    assert_eq!(own_node(&zookeeper).await, node, "it stays where the lost request moved it");
    strike(&proxy, MULTI, 0, Verdict::DropReply);
    unavailable(locks.reissue(&name("r"), &lock.ownership, lock.token).await);
    let unheard = direct.status(&name("r")).await.unwrap().held.unwrap().token;
    assert!(unheard > lock.token);
    let reissued = locks.reissue(&name("r"), &lock.ownership, lock.token).await.unwrap();
    assert!(reissued > Some(unheard));
    strike(&proxy, DELETE, 0, Verdict::DropReply);
    unavailable(locks.release(&name("r"), &lock.ownership.holder, reissued).await);
    assert!(!locks.release(&name("r"), &lock.ownership.holder, reissued).await.unwrap());
    until_free(&direct).await;
    assert!(proxy.has_struck());
}

/// The request to make the node is held back until its client has given up.
#[tokio::test]
async fn attempt_that_arrives_after_its_release_acquires_nothing() {
    // The control: without a release, and without a client that connects its session anew, it acquires.
    for releases in [false, true] {
        let (zookeeper, proxy, locks) = behind_a_proxy().await;
        let locks = locks.answer_within(Duration::from_secs(1));
        let (direct, holder) = (client(&zookeeper.url()), Holder::random());
        let hold = proxy.hold("/holder-");
        let late = {
            let mut trying = pin!(attempt(&locks, &holder, Order::Unordered));
            let late = tokio::select! {
                tried = &mut trying => panic!("{tried:?}"),
                late = hold.caught() => late.unwrap(),
            };
            if releases {
                unavailable(trying.await);
            }
            late
        };
        if releases {
            assert!(!locks.release(&name("r"), &holder, None).await.unwrap());
        } else {
            drop(locks);
        }
        late.deliver();
        let is_held = async || Ok(direct.status(&name("r")).await?.held.is_some());
        if releases {
            // It arrives at once, or never.
            sleep(Duration::from_millis(500)).await;
            assert!(!is_held().await.unwrap());
        } else {
            until_async(SOON, is_held).await.unwrap();
        }
    }
}

/// A request moves the lock to a longer session, of this client or of another one that has the handle.
/// It arrives before the release, and its reply is lost, or it arrives after the release.
#[tokio::test]
async fn release_of_a_lock_that_an_unanswered_request_moves_leaves_nothing() {
    for (is_others, arrives_first) in [(false, false), (false, true), (true, false), (true, true)] {
        let (zookeeper, proxy, locks) = behind_a_proxy().await;
        let locks = locks.answer_within(Duration::from_secs(2));
        let lock = acquired(&locks, &name("r"), secs(60)).await;
        let node = own_node(&zookeeper).await;
        let other = client(&proxy.url("zookeeper")).answer_within(Duration::from_secs(2));
        let (r, moving) = (name("r"), if is_others { &other } else { &locks });
        let moved = moving.renew(&r, &lock.ownership, secs(90));
        if arrives_first {
            strike(&proxy, MULTI, 0, Verdict::DropReply);
            unavailable(moved.await);
            assert_ne!(own_node(&zookeeper).await, node, "the control: it moves");
            assert!(release(&locks, &lock).await);
        } else {
            let hold = proxy.hold(&format!("90000 {}", lock.ownership.grant));
            let (moved, late) = tokio::join!(moved, async {
                let late = hold.caught().await.unwrap();
                // Longer than the client waits for an answer.
                sleep(Duration::from_secs(3)).await;
                late
            });
            unavailable(moved);
            assert!(release(&locks, &lock).await);
            late.deliver();
            // It arrives at once, or never.
            sleep(Duration::from_millis(500)).await;
        }
        let nodes = zookeeper.ephemeral_nodes().await.unwrap();
        assert!(!nodes.contains("/fenced"), "{is_others} {arrives_first}: {nodes}");
    }
}

/// Nothing is under way that could move the holder elsewhere.
#[tokio::test]
async fn release_is_one_request_if_none_may_arrive_late() {
    let (_zookeeper, proxy, locks) = behind_a_proxy().await;
    let looks = || proxy.requests("/fenced/offsets/r");
    for renews_for in [None, Some(60), Some(90)] {
        let lock = acquired(&locks, &name("r"), secs(60)).await;
        if let Some(seconds) = renews_for {
            let renewed = locks.renew(&name("r"), &lock.ownership, secs(seconds)).await;
            assert_eq!(renewed.unwrap(), Some(lock.token));
        }
        let (before, deletions) = (looks(), count(&proxy, DELETE));
        assert!(release(&locks, &lock).await);
        assert_eq!(looks(), before, "{renews_for:?}");
        assert_eq!(deletions.load(Ordering::SeqCst), 1, "{renews_for:?}");
        assert!(locks.status(&name("r")).await.unwrap().held.is_none());
    }
}

/// The renewal has proven the session that the lock was on until now. The other one has had its time only
/// since the other renewal. So the lock moves back.
#[tokio::test]
async fn renewal_follows_a_lock_that_another_client_moves_meanwhile() {
    let (zookeeper, proxy, locks) = behind_a_proxy().await;
    let (locks, direct) = (locks.answer_within(Duration::from_secs(3)), client(&zookeeper.url()));
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    // With another place in the queue, a look is two messages.
    busy(attempt(&direct, &Holder::random(), Order::Fair).await);
    let is_looking = strike(&proxy, MULTI_READ, 1, Verdict::Delay(Duration::from_secs(2)));
    let r = name("r");
    let (renewed, moved) = tokio::join!(locks.renew(&r, &lock.ownership, secs(60)), async {
        until(SOON, || Ok(is_looking.load(Ordering::SeqCst))).await.unwrap();
        direct.renew(&r, &lock.ownership, secs(90)).await
    });
    assert_eq!(moved.unwrap(), Some(lock.token), "the control: it moves");
    assert_eq!(renewed.unwrap(), Some(lock.token));
    let renewed = locks.renew(&r, &lock.ownership, secs(60)).await;
    assert_eq!(renewed.unwrap(), Some(lock.token));
    assert!(release(&locks, &lock).await);
}

#[tokio::test]
async fn release_of_a_remembered_holder_needs_no_look() {
    let (zookeeper, proxy, locks) = behind_a_proxy().await;
    let direct = client(&zookeeper.url());
    for is_remembered in [true, false] {
        let owner = if is_remembered { &locks } else { &direct };
        let lock = acquired(owner, &name("r"), secs(60)).await;
        strike(&proxy, SYNC, 0, Verdict::Drop);
        let released = locks.release(&name("r"), &lock.ownership.holder, Some(lock.token)).await;
        match is_remembered {
            true => assert!(released.unwrap()),
            false => unavailable(released),
        }
        let is_free = direct.status(&name("r")).await.unwrap().held.is_none();
        assert_eq!(is_free, is_remembered, "only what is remembered can be deleted");
    }
}

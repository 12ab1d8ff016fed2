//! Requests whose replies are lost, and requests that arrive late.

use std::{sync::atomic::Ordering, time::Duration};

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
    service::{SOON, acquired, attempt, busy, client, held, release, secs, until_free},
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

/// The path of the only node of a holder, which contains its session if the lock was moved.
async fn own_node(zookeeper: &ZooKeeper) -> String {
    let nodes = zookeeper.ephemeral_nodes().await.unwrap();
    let mut nodes = nodes.lines().filter(|line| line.contains("/holder-"));
    let (node, next) = (nodes.next().unwrap().to_owned(), nodes.next());
    assert_eq!(next, None);
    node
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
    // The proof is repeated at once.
    strike(&proxy, MULTI, 0, Verdict::DropReply);
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
    assert_eq!(renewed.unwrap(), Some(lock.token));
    assert!(proxy.has_struck());
    // A renewal for longer begins with the move.
    for (lost, seconds) in [(MULTI_READ, 60), (MULTI, 90)] {
        strike(&proxy, lost, 0, Verdict::DropReply);
        unavailable(locks.renew(&name("r"), &lock.ownership, secs(seconds)).await);
        let node = own_node(&zookeeper).await;
        let renewed = locks.renew(&name("r"), &lock.ownership, secs(seconds)).await;
        assert_eq!(renewed.unwrap(), Some(lock.token), "{lost}");
        assert_eq!(own_node(&zookeeper).await, node, "it stays where the lost request moved it");
    }
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
    // The control: without a release, it acquires.
    for releases in [false, true] {
        let (zookeeper, proxy, locks) = behind_a_proxy().await;
        let locks = locks.answer_within(Duration::from_secs(1));
        let (direct, holder) = (client(&zookeeper.url()), Holder::random());
        let hold = proxy.hold("/holder-");
        let (tried, late) = tokio::join!(attempt(&locks, &holder, Order::Unordered), async {
            let late = hold.caught().await.unwrap();
            // Longer than the client waits for an answer.
            sleep(Duration::from_millis(1_500)).await;
            late
        });
        unavailable(tried);
        if releases {
            assert!(!locks.release(&name("r"), &holder, None).await.unwrap());
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

/// A request that moves the lock to a longer session, of this client or of another one that has the
/// handle, arrives before the release or after it.
#[tokio::test]
async fn release_of_a_lock_that_a_late_request_moves_leaves_nothing() {
    for (is_others, arrives_first) in [(false, false), (false, true), (true, false), (true, true)] {
        let (zookeeper, proxy, locks) = behind_a_proxy().await;
        let locks = locks.answer_within(Duration::from_secs(2));
        let lock = acquired(&locks, &name("r"), secs(60)).await;
        let other = client(&proxy.url("zookeeper")).answer_within(Duration::from_secs(2));
        let hold = proxy.hold(&format!("+{}+", lock.ownership.grant));
        let moving = if is_others { &other } else { &locks };
        let r = name("r");
        let (renewed, late) = tokio::join!(
            moving.renew(&r, &lock.ownership, secs(90)),
            // Longer than the client waits for an answer.
            async {
                let late = hold.caught().await.unwrap();
                sleep(Duration::from_secs(3)).await;
                late
            }
        );
        unavailable(renewed);
        if arrives_first {
            late.deliver();
            let has_moved = async || Ok(zookeeper.ephemeral_nodes().await?.contains('+'));
            until_async(SOON, has_moved).await.expect("the control: it moves");
            assert!(release(&locks, &lock).await);
        } else {
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

/// The renewal has proven the session that the lock was on until now. The longer one has had its time only
/// since the late renewal. So the lock moves back.
#[tokio::test]
async fn renewal_follows_a_lock_that_a_late_one_moves_meanwhile() {
    let (zookeeper, proxy, locks) = behind_a_proxy().await;
    let locks = locks.answer_within(Duration::from_secs(3));
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    // With another place in the queue, a look is two messages.
    busy(attempt(&client(&zookeeper.url()), &Holder::random(), Order::Fair).await);
    let hold = proxy.hold(&format!("+{}+", lock.ownership.grant));
    let r = name("r");
    let renew = |seconds| locks.renew(&r, &lock.ownership, secs(seconds));
    let (renewed, late) = tokio::join!(
        renew(90),
        // Longer than the client waits for an answer.
        async {
            let late = hold.caught().await.unwrap();
            sleep(Duration::from_secs(4)).await;
            late
        }
    );
    unavailable(renewed);
    let is_looking = strike(&proxy, MULTI_READ, 1, Verdict::Delay(Duration::from_secs(2)));
    let (renewed, ()) = tokio::join!(renew(60), async {
        until(SOON, || Ok(is_looking.load(Ordering::SeqCst))).await.unwrap();
        late.deliver();
        let has_moved = async || Ok(zookeeper.ephemeral_nodes().await?.contains('+'));
        until_async(SOON, has_moved).await.expect("it moves before the look goes on");
    });
    assert_eq!(renewed.unwrap(), Some(lock.token));
    assert_eq!(renew(60).await.unwrap(), Some(lock.token));
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

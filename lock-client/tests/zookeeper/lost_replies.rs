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
    strike::{CLOSE_SESSION, CONNECT, CREATE, MULTI, MULTI_READ, SYNC, strike},
};
use crate::names::name;

/// How long the end of a session is delayed. Something else happens meanwhile, also on a busy machine.
const LATE_END: Duration = Duration::from_secs(6);

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
    for order in [Order::Unordered, Order::Fair] {
        for verdict in [Verdict::Drop, Verdict::DropReply] {
            for (lost, passing) in [(SYNC, 0), (CONNECT, 0), (CREATE, 0), (MULTI_READ, 1)] {
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
    for (lost, seconds) in [(CONNECT, 60), (MULTI, 60), (MULTI_READ, 60), (MULTI, 90)] {
        // The second transaction of a renewal for longer is the move.
        let passing = usize::from(seconds == 90);
        strike(&proxy, lost, passing, Verdict::DropReply);
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
    // The release ends the session that the client remembers, also if its look fails.
    for lost in [CLOSE_SESSION, SYNC] {
        strike(&proxy, lost, 0, Verdict::DropReply);
        unavailable(locks.release(&name("r"), &lock.ownership.holder, reissued).await);
    }
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

/// The move to a longer session arrives after the release has looked, and before it ends the session.
#[tokio::test]
async fn release_ends_the_longer_session_of_a_late_renewal() {
    let (zookeeper, proxy, locks) = behind_a_proxy().await;
    let locks = locks.answer_within(Duration::from_secs(3));
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let hold = proxy.hold(&format!("+{}+", lock.ownership.grant));
    let r = name("r");
    let (renewed, late) = tokio::join!(
        locks.renew(&r, &lock.ownership, secs(90)),
        // Longer than the client waits for an answer.
        async {
            let late = hold.caught().await.unwrap();
            sleep(Duration::from_secs(4)).await;
            late
        }
    );
    unavailable(renewed);
    let is_ending = strike(&proxy, CONNECT, 0, Verdict::Delay(LATE_END));
    let patient = locks.clone().answer_within(2 * LATE_END);
    let (was_released, ()) = tokio::join!(release(&patient, &lock), async {
        until(SOON, || Ok(is_ending.load(Ordering::SeqCst))).await.unwrap();
        late.deliver();
        let has_moved = async || Ok(zookeeper.ephemeral_nodes().await?.contains('+'));
        until_async(SOON, has_moved).await.expect("it moves before the session ends");
    });
    assert!(was_released);
    let held = client(&zookeeper.url()).status(&name("r")).await.unwrap().held;
    assert!(held.is_none(), "{held:?}");
}

/// So is that of another client, which has the handle of a lock that this one has adopted.
#[tokio::test]
async fn release_of_an_adopted_lock_ends_the_longer_session_of_another_client() {
    let (zookeeper, proxy, locks) = behind_a_proxy().await;
    let (others_proxy, other) = proxied(&zookeeper).await;
    let lock = acquired(&client(&zookeeper.url()), &name("r"), secs(60)).await;
    let adopted = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
    assert_eq!(adopted.unwrap(), Some(lock.token));
    let hold = others_proxy.hold(&format!("+{}+", lock.ownership.grant));
    let ownership = lock.ownership.clone();
    let moving = tokio::spawn(async move { other.renew(&name("r"), &ownership, secs(90)).await });
    let late = hold.caught().await.unwrap();
    let is_ending = strike(&proxy, CONNECT, 0, Verdict::Delay(LATE_END));
    let patient = locks.clone().answer_within(2 * LATE_END);
    let (was_released, ()) = tokio::join!(release(&patient, &lock), async {
        until(SOON, || Ok(is_ending.load(Ordering::SeqCst))).await.unwrap();
        late.deliver();
        let has_moved = async || Ok(zookeeper.ephemeral_nodes().await?.contains('+'));
        until_async(SOON, has_moved).await.expect("it moves before the session ends");
    });
    assert!(was_released);
    let held = client(&zookeeper.url()).status(&name("r")).await.unwrap().held;
    assert!(held.is_none(), "{held:?}");
    moving.abort();
}

/// Nothing is under way that could move the holder elsewhere. Each look is one message, and reads the
/// offset.
#[tokio::test]
async fn release_looks_once_if_no_request_may_arrive_late() {
    let (_zookeeper, proxy, locks) = behind_a_proxy().await;
    let looks = || proxy.requests("/fenced/offsets/r");
    for renews_for in [None, Some(60), Some(90)] {
        let lock = acquired(&locks, &name("r"), secs(60)).await;
        if let Some(seconds) = renews_for {
            let renewed = locks.renew(&name("r"), &lock.ownership, secs(seconds)).await;
            assert_eq!(renewed.unwrap(), Some(lock.token));
        }
        let before = looks();
        assert!(release(&locks, &lock).await);
        assert_eq!(looks(), before + 1, "{renews_for:?}");
        assert!(locks.status(&name("r")).await.unwrap().held.is_none());
    }
}

/// The renewal has set the time of the session that the lock was on until now. The longer one has had
/// its time only since the late renewal.
#[tokio::test]
async fn renewal_does_not_count_if_a_late_one_moves_the_lock_meanwhile() {
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
    unavailable(renewed);
    assert_eq!(renew(60).await.unwrap(), Some(lock.token), "it renews the longer session");
    assert!(release(&locks, &lock).await);
}

#[tokio::test]
async fn release_whose_look_fails_ends_the_session() {
    let (zookeeper, proxy, locks) = behind_a_proxy().await;
    let direct = client(&zookeeper.url());
    for is_remembered in [true, false] {
        let owner = if is_remembered { &locks } else { &direct };
        let lock = acquired(owner, &name("r"), secs(60)).await;
        strike(&proxy, SYNC, 0, Verdict::Drop);
        let released = locks.release(&name("r"), &lock.ownership.holder, Some(lock.token)).await;
        unavailable(released);
        let is_free = direct.status(&name("r")).await.unwrap().held.is_none();
        assert_eq!(is_free, is_remembered, "only what is remembered can be ended");
    }
}

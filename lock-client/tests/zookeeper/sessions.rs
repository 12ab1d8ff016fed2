//! The sessions of a client, which its locks of one ttl share.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fence::Holder;
use futures_util::future::join_all;
use lock_client::{
    Locks, Order, Terms,
    backend::{Backend, BackendError},
};
use testbed::{
    Proxy, ZooKeeper,
    proxy::Verdict,
    wait::{until, until_async},
};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use zookeeper_client::Client as RawClient;

use super::{
    service::{
        SOON, acquired, attempt, busy, client, own_node, release, secs, session_of, until_free,
    },
    strike::{CONNECT, DELETE, LosesAll, MULTI, SYNC, Slow, count, delay, strike},
};
use crate::names::name;

#[tokio::test]
async fn locks_of_one_ttl_share_a_session_and_its_connection() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let names: Vec<_> = (0..50).map(|number| name(&format!("r{number}"))).collect();
    let held = join_all(names.iter().map(|name| acquired(&locks, name, secs(60)))).await;
    assert_eq!(zookeeper.sessions(0).await.unwrap().len(), 1);
    assert!(zookeeper.connections(0).await.unwrap() <= 2, "the session's, and the question's");
    acquired(&locks, &name("other"), secs(30)).await;
    assert_eq!(zookeeper.sessions(0).await.unwrap().len(), 2, "the control: another ttl");
    for (name, lock) in names.iter().zip(held) {
        assert!(locks.release(name, &lock.ownership.holder, Some(lock.token)).await.unwrap());
    }
}

/// A member allows 60 connections to each address. Renewals need none that waiters can take.
#[tokio::test]
async fn holder_keeps_its_lock_while_waiters_use_up_the_connections() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let holder = Locks::new(client(&zookeeper.url()));
    let lease = holder.acquire(&name("r"), secs(6)).await.unwrap();
    let token = lease.token().unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..70 {
        let waiting = Locks::new(client(&zookeeper.url()));
        waiters.spawn(async move {
            let _ = waiting.acquire(&name("r"), Terms::new(secs(60)).wait(4 * SOON)).await;
        });
    }
    let are_used_up = async || {
        let newcomer = client(&zookeeper.url()).answer_within(Duration::from_secs(1));
        Ok(matches!(newcomer.status(&name("r")).await, Err(BackendError::Unavailable(_))))
    };
    until_async(SOON, are_used_up).await.expect("the control: there are no more");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        assert_eq!(lease.token().expect("it is renewed"), token);
        sleep(Duration::from_millis(100)).await;
    }
    assert!(lease.reissue(token).await.unwrap() > token, "neither does a reissue");
    assert!(are_used_up().await.unwrap(), "the control: there still are no more");
    waiters.shutdown().await;
    lease.release().await.unwrap();
}

/// A renewal in an ensemble makes another connection. No member has one left, so it leaves the old one first.
#[tokio::test]
async fn holder_keeps_its_lock_while_others_use_up_the_connections_of_all_members() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    zookeeper.limit_connections(3);
    zookeeper.restart().await.unwrap();
    zookeeper.leader_among(&[0, 1, 2]).await.unwrap();
    let url = zookeeper.url();
    let locks = Locks::new(client(&url).answer_within(Duration::from_secs(1)));
    let lease = locks.acquire(&name("r"), secs(6)).await.unwrap();
    let token = lease.token().unwrap();
    let mut others = Vec::new();
    for member in 0..3 {
        let address = zookeeper.address(member).to_string();
        while let Ok(other) = RawClient::connector().with_fail_eagerly().connect(&address).await {
            others.push(other);
        }
    }
    let are_used_up = async || {
        let newcomer = client(&url).answer_within(Duration::from_secs(1));
        Ok(matches!(newcomer.status(&name("r")).await, Err(BackendError::Unavailable(_))))
    };
    until_async(SOON, are_used_up).await.expect("the control: there are no more");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        assert_eq!(lease.token().expect("it is renewed"), token);
        sleep(Duration::from_millis(100)).await;
    }
    // A newcomer may come while the holder leaves its connection.
    until_async(SOON, are_used_up).await.expect("the control: there still are no more");
    assert_eq!(others.len(), 8, "all but the holder's");
    drop(others);
    lease.release().await.unwrap();
}

/// Its session goes on, because the client holds another lock.
#[tokio::test]
async fn ended_lease_is_deleted_again_until_that_is_answered() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let direct = client(&zookeeper.url());
    let locks = client(&proxy.url("zookeeper")).answer_within(Duration::from_secs(1));
    let terms = Terms::new(secs(4));
    let kept = Locks::new(locks.clone()).acquire(&name("kept"), terms).await.unwrap();
    let sessions = zookeeper.sessions(0).await.unwrap();
    acquired(&locks, &name("r"), secs(4)).await;
    let has_struck = strike(&proxy, DELETE, 0, Verdict::Drop);
    until_free(&direct).await;
    assert!(has_struck.load(Ordering::SeqCst), "the first deletion was lost");
    let left = zookeeper.sessions(0).await.unwrap();
    assert!(sessions.iter().all(|session| left.contains(session)), "{sessions:?} {left:?}");
    assert!(kept.token().is_ok(), "the control: the session lives");
    kept.release().await.unwrap();
}

/// ZooKeeper takes everything but deletions. Only the end of the session frees the lock.
#[tokio::test]
async fn session_is_given_up_if_a_deletion_has_no_answer_for_a_ttl() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let direct = client(&zookeeper.url());
    let locks = client(&proxy.url("zookeeper")).answer_within(Duration::from_millis(500));
    proxy.add(Slow { kind: DELETE, delay: 4 * SOON });
    let begun = Instant::now();
    acquired(&locks, &name("r"), secs(3)).await;
    sleep(Duration::from_secs(5)).await;
    busy(attempt(&direct, &Holder::random(), Order::Unordered).await);
    until_free(&direct).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// The locks that are renewed move to one other session. The lock that could not be deleted is deleted as
/// soon as ZooKeeper takes that, not when the session ends.
#[tokio::test]
async fn locks_of_a_session_that_is_given_up_share_the_next_one() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let direct = client(&zookeeper.url());
    let locks = client(&proxy.url("zookeeper")).answer_within(Duration::from_secs(1));
    let (ttl, [a, b]) = (secs(12), ["a", "b"].map(name));
    let kept = [acquired(&locks, &a, ttl).await, acquired(&locks, &b, ttl).await];
    let before = session_of(&zookeeper, "a").await;
    assert_eq!(session_of(&zookeeper, "b").await, before);
    let is_on = Arc::new(AtomicBool::new(true));
    proxy.add(LosesAll { kind: DELETE, is_on: is_on.clone() });
    acquired(&locks, &name("r"), ttl).await;
    let renew_both = async || {
        for (name, lock) in [&a, &b].into_iter().zip(&kept) {
            // A deletion that is lost ends their connection.
            let is_renewed = async || match locks.renew(name, &lock.ownership, ttl).await {
                Err(BackendError::Unavailable(_)) => Ok(false),
                renewed => {
                    assert_eq!(renewed.unwrap(), Some(lock.token));
                    Ok(true)
                }
            };
            until_async(ttl.as_duration() / 3, is_renewed).await.expect("the lease goes on");
        }
    };
    let have_moved = async || {
        renew_both().await;
        let sessions = (session_of(&zookeeper, "a").await, session_of(&zookeeper, "b").await);
        Ok(sessions.0 != before && sessions.1 != before)
    };
    until_async(2 * SOON, have_moved).await.expect("the session is given up");
    assert_eq!(session_of(&zookeeper, "a").await, session_of(&zookeeper, "b").await);
    busy(attempt(&direct, &Holder::random(), Order::Unordered).await);
    is_on.store(false, Ordering::SeqCst);
    let begun = Instant::now();
    until_free(&direct).await;
    assert!(begun.elapsed() < ttl.as_duration() / 2, "{:?}", begun.elapsed());
    renew_both().await;
    for (name, lock) in [&a, &b].into_iter().zip(&kept) {
        assert!(locks.release(name, &lock.ownership.holder, None).await.unwrap());
    }
}

/// The renewal needs no place that others may take: neither for its look, nor for the deletion.
#[tokio::test]
async fn lock_of_a_session_that_is_given_up_moves_over_one_connection() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    zookeeper.limit_connections(2);
    zookeeper.restart().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let locks = client(&proxy.url("zookeeper")).answer_within(Duration::from_secs(1));
    let (a, ttl) = (name("a"), secs(6));
    let kept = acquired(&locks, &a, ttl).await;
    let connect = async || {
        let connector = RawClient::connector().with_fail_eagerly();
        connector.connect(&zookeeper.address(0).to_string()).await
    };
    let other = connect().await.unwrap();
    let session = async || {
        let nodes = other.list_children("/fenced/queues/a").await.unwrap();
        let path = format!("/fenced/queues/a/{}", nodes[0]);
        other.check_stat(&path).await.unwrap().map(|stat| stat.ephemeral_owner)
    };
    let before = session().await;
    let is_on = Arc::new(AtomicBool::new(true));
    proxy.add(LosesAll { kind: DELETE, is_on: is_on.clone() });
    acquired(&locks, &name("r"), ttl).await;
    let mut has_moved = false;
    while !has_moved {
        let is_renewed = async || match locks.renew(&a, &kept.ownership, ttl).await {
            Err(BackendError::Unavailable(_)) => Ok(false),
            renewed => {
                assert_eq!(renewed.unwrap(), Some(kept.token));
                Ok(true)
            }
        };
        until_async(ttl.as_duration(), is_renewed).await.expect("the lease goes on");
        has_moved = session().await != before;
        sleep(Duration::from_millis(100)).await;
    }
    assert!(connect().await.is_err(), "the control: there are no more places");
}

/// The member that answers belongs to another ensemble, and knows no session of this one.
#[tokio::test]
async fn try_ends_no_session_while_a_member_is_silent() {
    let (zookeeper, foreign) =
        (ZooKeeper::start().await.unwrap(), ZooKeeper::start().await.unwrap());
    let silent = Proxy::start(zookeeper.address(0)).await.unwrap();
    let wrong = Proxy::start(foreign.address(0)).await.unwrap();
    let url = format!("zookeeper://{},{}", silent.address(), wrong.address());
    let locks = client(&url).answer_within(Duration::from_secs(1));
    let (kept, ttl) = (name("kept"), secs(60));
    let lock = acquired(&locks, &kept, ttl).await;
    let session = session_of(&zookeeper, "kept").await;
    silent.cut();
    for number in 0..3 {
        let other = name(&format!("r{number}"));
        let tried = locks.try_acquire(&other, &Holder::random(), ttl, Order::Fair).await;
        assert!(matches!(tried, Err(BackendError::Unavailable(_))), "{tried:?}");
    }
    wrong.switch_to(zookeeper.address(0));
    silent.mend();
    let is_renewed = async || {
        let renewed = locks.renew(&kept, &lock.ownership, ttl).await;
        Ok(matches!(renewed, Ok(Some(token)) if token == lock.token))
    };
    until_async(SOON, is_renewed).await.unwrap();
    assert_eq!(session_of(&zookeeper, "kept").await, session);
}

/// A new connection can't be made, but the old one works.
#[tokio::test]
async fn renewal_without_a_new_connection_keeps_the_old_one() {
    let zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let locks = client(&proxy.url("zookeeper")).answer_within(Duration::from_secs(1));
    let (kept, ttl) = (name("kept"), secs(60));
    let lock = acquired(&locks, &kept, ttl).await;
    let connections = count(&proxy, CONNECT);
    delay(&proxy, CONNECT, 2 * SOON);
    let renewed = locks.renew(&kept, &lock.ownership, ttl).await;
    assert!(matches!(renewed, Err(BackendError::Unavailable(_))), "{renewed:?}");
    assert!(connections.load(Ordering::SeqCst) > 0, "the control: it needs a new connection");
    let reissued = locks.reissue(&kept, &lock.ownership, lock.token).await.unwrap();
    assert!(reissued > Some(lock.token));
}

/// Each connection is closed at once, as by a member that has just died.
#[tokio::test]
async fn outage_is_no_storm_of_connections() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let locks = client(&proxy.url("zookeeper"));
    acquired(&locks, &name("r"), secs(60)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    proxy.switch_to(listener.local_addr().unwrap());
    zookeeper.process(0).kill().unwrap();
    let mut connections = 0;
    let counting = async {
        loop {
            drop(listener.accept().await.unwrap());
            connections += 1;
        }
    };
    timeout(Duration::from_secs(2), counting).await.expect_err("it counts on");
    assert!(connections > 0, "the control: it tries again");
    assert!(connections < 60, "{connections}");
}

/// A process that ended before would leave a node, and with it the lock, for a ttl.
#[tokio::test]
async fn undone_try_is_waited_for() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let locks = client(&proxy.url("zookeeper")).answer_within(Duration::from_secs(1));
    acquired(&client(&zookeeper.url()), &name("r"), secs(60)).await;
    let is_on = Arc::new(AtomicBool::new(true));
    proxy.add(LosesAll { kind: DELETE, is_on: is_on.clone() });
    attempt(&locks, &Holder::random(), Order::Unordered).await.expect_err("the undo is lost");
    let waiting = timeout(Duration::from_secs(1), locks.wait_for_releases());
    waiting.await.expect_err("no deletion has an answer");
    is_on.store(false, Ordering::SeqCst);
    timeout(SOON, locks.wait_for_releases()).await.expect("the node is deleted");
    own_node(&zookeeper).await;
}

/// The renewal looks before the lease ends. The move that it then sends has no answer, and arrives before
/// the deletion.
#[tokio::test]
async fn renewal_that_looked_before_the_lease_ended_leaves_nothing() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let direct = client(&zookeeper.url());
    let locks = client(&proxy.url("zookeeper")).answer_within(Duration::from_secs(10));
    let lock = acquired(&locks, &name("r"), secs(16)).await;
    sleep(Duration::from_millis(14_800)).await;
    let has_looked = strike(&proxy, SYNC, 0, Verdict::DelayReply(Duration::from_millis(2_200)));
    proxy.add(Slow { kind: DELETE, delay: Duration::from_secs(3) });
    strike(&proxy, MULTI, 0, Verdict::DropReply);
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(90)).await;
    assert!(has_looked.load(Ordering::SeqCst));
    assert!(!matches!(renewed, Ok(Some(_))), "the lease had ended: {renewed:?}");
    until_free(&direct).await;
}

/// Nothing is asked of the lock meanwhile, so only the client's own task can mend its connection.
#[tokio::test]
async fn cut_connection_is_made_again_while_a_deletion_hangs() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let proxy = Proxy::start(zookeeper.address(0)).await.unwrap();
    let locks = client(&proxy.url("zookeeper")).answer_within(2 * SOON);
    let kept = acquired(&locks, &name("kept"), secs(60)).await;
    // It is on another session, and ends in a second.
    let ended = acquired(&locks, &name("r"), secs(61)).await;
    let deletions = count(&proxy, DELETE);
    proxy.add(Slow { kind: DELETE, delay: 2 * SOON });
    let renewed = locks.renew(&name("r"), &ended.ownership, secs(1)).await;
    assert_eq!(renewed.unwrap(), Some(ended.token));
    until(SOON, || Ok(deletions.load(Ordering::SeqCst) > 0)).await.unwrap();
    strike(&proxy, SYNC, 0, Verdict::Drop);
    let connections = count(&proxy, CONNECT);
    locks.reissue(&name("kept"), &kept.ownership, kept.token).await.expect_err("it is cut");
    // The deletion takes longer.
    let is_made = || Ok(connections.load(Ordering::SeqCst) > 0);
    until(SOON / 3, is_made).await.expect("it is made again");
}

/// A proof in an ensemble needs a new connection. A try does not leave the old one for it, because the
/// client would lose its locks if another takes the place.
#[tokio::test]
async fn try_does_not_leave_the_connection_of_held_locks() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    zookeeper.limit_connections(1);
    zookeeper.restart().await.unwrap();
    zookeeper.leader_among(&[0, 1, 2]).await.unwrap();
    let locks = client(&zookeeper.url()).answer_within(Duration::from_secs(1));
    let (kept, ttl) = (name("kept"), secs(6));
    let lock = acquired(&locks, &kept, ttl).await;
    // It takes each place that is free for a moment.
    let (places, addresses) = (
        Arc::<Mutex<Vec<RawClient>>>::default(),
        [0, 1, 2].map(|number| zookeeper.address(number)),
    );
    let taking = addresses.map(|address| {
        let places = places.clone();
        tokio::spawn(async move {
            loop {
                let connector = RawClient::connector().with_fail_eagerly();
                if let Ok(place) = connector.connect(&address.to_string()).await {
                    places.lock().unwrap().push(place);
                }
                sleep(Duration::from_millis(1)).await;
            }
        })
    });
    until(SOON, || Ok(places.lock().unwrap().len() == 2)).await.expect("two are free");
    // The last proof is too old for a try by then.
    sleep(Duration::from_secs(1)).await;
    for number in 0..3 {
        let other = name(&format!("r{number}"));
        let tried = locks.try_acquire(&other, &Holder::random(), ttl, Order::Fair).await;
        assert!(matches!(tried, Err(BackendError::Unavailable(_))), "{tried:?}");
    }
    assert_eq!(places.lock().unwrap().len(), 2, "the try has left no place");
    taking.into_iter().for_each(|task| task.abort());
    places.lock().unwrap().clear();
    let is_renewed = async || {
        let renewed = locks.renew(&kept, &lock.ownership, ttl).await;
        Ok(matches!(renewed, Ok(Some(token)) if token == lock.token))
    };
    until_async(ttl.as_duration(), is_renewed).await.expect("the lock is still held");
}

/// The end of a session lists its paths in one message. One of more than a mebibyte stops the ensemble.
#[tokio::test]
async fn session_takes_half_a_mebibyte_of_paths() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    // A slash needs three bytes in a path.
    let slashes = "/a".repeat(250);
    let names: Vec<_> = (0..600).map(|number| name(&format!("{number}{slashes}"))).collect();
    for part in names.chunks(50) {
        join_all(part.iter().map(|name| acquired(&locks, name, secs(60)))).await;
    }
    let sessions = zookeeper.sessions(0).await.unwrap();
    let bytes = 600 * (4 * 250 + 50);
    assert!(sessions.len() > bytes / (512 << 10), "{sessions:?}");
}

#[tokio::test]
async fn detachable_lock_has_a_session_of_its_own() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let client = client(&zookeeper.url());
    let locks = Locks::new(client.clone());
    let shared = acquired(&client, &name("r"), secs(60)).await;
    let before = zookeeper.sessions(0).await.unwrap();
    let lease = locks.acquire(&name("own"), Terms::new(secs(60)).detachable()).await.unwrap();
    assert_eq!(zookeeper.sessions(0).await.unwrap().len(), before.len() + 1);
    assert!(release(&client, &shared).await);
    assert!(lease.token().is_ok());
    lease.release().await.unwrap();
    assert!(!zookeeper.ephemeral_nodes().await.unwrap().contains("/fenced"));
}

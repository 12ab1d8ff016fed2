//! Waiters that are notified of their turn. Their next attempt is one transaction.

use fence::{Holder, Token};
use lock_client::{
    Order,
    backend::{Backend, BackendError, Wakeups},
    etcd,
};
use testbed::{Etcd, wait::until_async};
use tokio::time::timeout;

use super::service::{SOON, acquired, attempt, behind_proxy, busy, client, held, release, secs};
use crate::names::name;

/// What is only in the transaction of a waiter whose turn it is.
const TURN: &str = "GREATER";

/// A waiter behind an owner, both of this client.
struct Waiter {
    holder: Holder,
    owner: super::service::Held,
    wakeups: Wakeups,
}

async fn queued(locks: &etcd::Etcd) -> Waiter {
    let owner = acquired(locks, &name("r"), secs(60)).await;
    let holder = Holder::random();
    busy(attempt(locks, &holder, Order::Fair).await);
    let wakeups = locks.subscribe(&name("r"), &holder, Order::Fair).await.unwrap();
    Waiter { holder, owner, wakeups }
}

/// Makes it the waiter's turn. A subscription goes on until the waiter holds the lock.
async fn notified(locks: &etcd::Etcd) -> (Holder, Wakeups) {
    let Waiter { holder, owner, wakeups } = queued(locks).await;
    assert!(release(locks, &owner).await);
    timeout(SOON, wakeups.next()).await.expect("it is notified");
    (holder, wakeups)
}

#[tokio::test]
async fn waiter_acquires_by_one_transaction() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let (waiter, _wakeups) = notified(&locks).await;
    let puts = proxy.requests("request_put");
    let lock = held(attempt(&locks, &waiter, Order::Fair).await);
    assert_eq!(proxy.requests("request_put"), puts + 1);
    assert_eq!(proxy.requests(TURN), 1);
    // A later attempt is no turn.
    let again = held(attempt(&locks, &waiter, Order::Fair).await);
    assert_eq!((again.token, again.ownership), (lock.token, lock.ownership.clone()));
    assert_eq!(proxy.requests(TURN), 1);
    assert!(release(&locks, &lock).await);
}

/// The owner reissues while the waiter is queued, and watches already.
#[tokio::test]
async fn token_is_above_the_one_that_the_owner_reissued() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let Waiter { holder, owner, wakeups } = queued(&locks).await;
    let far = Token::new(owner.token.as_u64() + 1_000).unwrap();
    let reissued = locks.reissue(&name("r"), &owner.ownership, far).await.unwrap();
    assert!(release(&locks, &owner).await);
    timeout(SOON, wakeups.next()).await.expect("it is notified");
    let next = held(attempt(&locks, &holder, Order::Fair).await);
    assert!(Some(next.token) > reissued, "{} follows {reissued:?}", next.token);
    assert_eq!(proxy.requests(TURN), 1);
}

/// What follows an attempt whose transaction is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The control: it acquires.
    Nothing,
    Release,
    Attempt,
}

#[tokio::test]
async fn transaction_that_arrives_late_changes_nothing() {
    for next in [Next::Nothing, Next::Release, Next::Attempt] {
        let (etcd, proxy, locks) = behind_proxy().await;
        let direct = client(&etcd.url());
        let (waiter, _wakeups) = notified(&locks).await;
        let hold = proxy.hold(TURN);
        let (tried, late) = tokio::join!(attempt(&locks, &waiter, Order::Fair), async {
            hold.caught().await.unwrap().cut()
        });
        assert!(matches!(tried, Err(BackendError::Unavailable(_))), "{tried:?}");
        match next {
            Next::Nothing => {}
            Next::Release => {
                assert!(locks.release(&name("r"), &waiter, None).await.unwrap());
            }
            Next::Attempt => drop(held(attempt(&locks, &waiter, Order::Fair).await)),
        }
        let answer = late.deliver().await.unwrap();
        let succeeds = answer.contains(r#""succeeded":true"#);
        assert_eq!(succeeds, next == Next::Nothing, "{next:?}: {answer}");
        let is_held = direct.status(&name("r")).await.unwrap().held.is_some();
        assert_eq!(is_held, next != Next::Release);
    }
}

/// The end of the owner's key, which a watch has shown, is undone by a restore.
#[tokio::test]
async fn waiter_whose_owner_is_back_does_not_own() {
    let mut etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let Waiter { holder, owner, wakeups } = queued(&locks).await;
    let snapshot = etcd.save_snapshot().await.unwrap();
    assert!(release(&locks, &owner).await);
    timeout(SOON, wakeups.next()).await.expect("it is notified");
    etcd.restore(&snapshot).await.unwrap();
    assert_eq!(busy(attempt(&locks, &holder, Order::Fair).await).ahead, Some(0));
    let held = locks.status(&name("r")).await.unwrap().held.unwrap();
    assert_eq!(held.ownership, owner.ownership);
}

#[tokio::test]
async fn waiter_behind_another_acquires_by_one_transaction() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let Waiter { mut holder, owner, mut wakeups } = queued(&locks).await;
    let mut owner = owner.ownership.holder;
    for _ in 0..3 {
        let last = Holder::random();
        busy(attempt(&locks, &last, Order::Fair).await);
        let last_wakeups = locks.subscribe(&name("r"), &last, Order::Fair).await.unwrap();
        let [turns, puts] = [TURN, "request_put"].map(|text| proxy.requests(text));
        assert!(locks.release(&name("r"), &owner, None).await.unwrap());
        timeout(SOON, wakeups.next()).await.expect("it is notified");
        held(attempt(&locks, &holder, Order::Fair).await);
        assert_eq!(proxy.requests(TURN), turns + 1);
        assert_eq!(proxy.requests("request_put"), puts + 1);
        (owner, holder, wakeups) = (holder, last, last_wakeups);
    }
}

/// Another waiter of its client keeps the session of both alive. A waiter that tries again keeps
/// its place, and one that is rejected does not.
#[tokio::test]
async fn waiter_that_tries_no_more_leaves_in_time() {
    for is_rejected in [false, true] {
        let etcd = Etcd::start().await.unwrap();
        let (locks, long) = (client(&etcd.url()), secs(600));
        let owner = acquired(&locks, &name("r"), long).await;
        let (silent, next, r) = (Holder::random(), Holder::random(), name("r"));
        busy(locks.try_acquire(&r, &silent, long, Order::Fair).await);
        if is_rejected {
            etcd.etcdctl(&["put", "fenced/r/offset", "foreign"]).await.unwrap();
            let rejected = locks.try_acquire(&r, &silent, long, Order::Fair).await;
            assert!(matches!(rejected, Err(BackendError::Rejected(_))), "{rejected:?}");
            etcd.etcdctl(&["del", "fenced/r/offset"]).await.unwrap();
        }
        assert_eq!(busy(locks.try_acquire(&r, &next, long, Order::Fair).await).ahead, Some(1));
        let moves_up = async || {
            let tried = locks.try_acquire(&r, &next, long, Order::Fair).await;
            Ok(busy(tried).ahead == Some(0))
        };
        until_async(2 * SOON, moves_up).await.expect("the silent one is skipped");
        assert!(release(&locks, &owner).await);
        held(locks.try_acquire(&r, &next, long, Order::Fair).await);
    }
}

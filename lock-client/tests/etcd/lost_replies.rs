//! Requests whose replies are lost, and requests that arrive late.

use fence::Holder;
use lock_client::{
    Order,
    backend::{Backend, BackendError},
};
use testbed::{Proxy, proxy::LateRequest};

use super::service::{
    PUT, acquired, attempt, behind_proxy, busy, client, held, own_leases, release, secs, until_free,
};
use crate::names::name;

const GRANT: &str = "/v3/lease/grant";
const KEEP_ALIVE: &str = "/v3/lease/keepalive";
const REVOKE: &str = "/v3/lease/revoke";
const TRANSACTION: &str = "/v3/kv/txn";

fn unavailable<T: std::fmt::Debug>(answer: Result<T, BackendError>) {
    assert!(matches!(answer, Err(BackendError::Unavailable(_))), "{answer:?}");
}

#[tokio::test]
async fn attempt_without_an_answer_is_repeated_with_the_same_token() {
    for order in [Order::Unordered, Order::Fair] {
        for lost in [GRANT, PUT] {
            let (etcd, proxy, locks) = behind_proxy().await;
            let holder = Holder::random();
            proxy.lose_reply_to(lost);
            unavailable(attempt(&locks, &holder, order).await);
            assert!(proxy.has_struck());
            let direct = client(&etcd.url());
            let before = direct.status(&name("r")).await.unwrap().held;
            assert_eq!(before.is_some(), lost == PUT, "what was lost is the reply");
            let lock = held(attempt(&locks, &holder, order).await);
            if let Some(before) = before {
                assert_eq!((before.token, before.ownership), (lock.token, lock.ownership.clone()));
            }
            assert!(release(&locks, &lock).await);
            assert_eq!(own_leases(&etcd).await, 0);
        }
    }
}

#[tokio::test]
async fn waiter_without_an_answer_keeps_one_place() {
    let (etcd, proxy, locks) = behind_proxy().await;
    let (owner, waiter) = (acquired(&locks, &name("r"), secs(60)).await, Holder::random());
    for lost in [TRANSACTION, GRANT, PUT, KEEP_ALIVE] {
        proxy.lose_reply_to(lost);
        unavailable(attempt(&locks, &waiter, Order::Fair).await);
        assert!(proxy.has_struck());
        assert_eq!(
            locks.status(&name("r")).await.unwrap().queued,
            u64::from(lost != TRANSACTION && lost != GRANT)
        );
    }
    assert_eq!(busy(attempt(&locks, &waiter, Order::Fair).await).ahead, Some(0));
    assert!(release(&locks, &owner).await);
    let lock = held(attempt(&locks, &waiter, Order::Fair).await);
    assert!(release(&locks, &lock).await);
    assert_eq!(own_leases(&etcd).await, 0);
}

#[tokio::test]
async fn renewal_reissue_and_release_without_an_answer_are_repeated() {
    let (etcd, proxy, locks) = behind_proxy().await;
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    for lost in [KEEP_ALIVE, TRANSACTION] {
        proxy.lose_reply_to(lost);
        unavailable(locks.renew(&name("r"), &lock.ownership, secs(60)).await);
        let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
        assert_eq!(renewed.unwrap(), Some(lock.token));
    }
    proxy.lose_reply_to(PUT);
    unavailable(locks.reissue(&name("r"), &lock.ownership, lock.token).await);
    let direct = client(&etcd.url());
    let unheard = direct.status(&name("r")).await.unwrap().held.unwrap().token;
    assert!(unheard > lock.token);
    let reissued = locks.reissue(&name("r"), &lock.ownership, lock.token).await.unwrap();
    assert!(reissued > Some(unheard));
    proxy.lose_reply_to(TRANSACTION);
    unavailable(locks.release(&name("r"), &lock.ownership.holder, reissued).await);
    until_free(&direct).await;
    assert!(!locks.release(&name("r"), &lock.ownership.holder, reissued).await.unwrap());
    assert!(proxy.has_struck());
    // A lock with a lease of its own.
    let (own_name, holder) = (name("r"), Holder::random());
    let tried = locks.try_acquire_detachable(&own_name, &holder, secs(60), Order::Unordered);
    let token = held(tried.await).token;
    assert_eq!(own_leases(&etcd).await, 1);
    proxy.lose_reply_to(REVOKE);
    assert!(locks.release(&name("r"), &holder, Some(token)).await.unwrap());
    assert!(!locks.release(&name("r"), &holder, Some(token)).await.unwrap());
    assert!(proxy.has_struck());
    assert_eq!(own_leases(&etcd).await, 0);
}

/// Who releases the lock of an attempt that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Released {
    /// The control: it acquires.
    No,
    /// The control: another client does not know on which lease the attempt is.
    ByAnotherClient,
    ByItsClient,
}

#[tokio::test]
async fn attempt_that_arrives_after_its_release_acquires_nothing() {
    let (etcd, proxy, locks) = behind_proxy().await;
    let direct = client(&etcd.url());
    for released in [Released::No, Released::ByAnotherClient, Released::ByItsClient] {
        let holder = Holder::random();
        let late = late_attempt(&proxy, &locks, &holder, Order::Unordered).await;
        let releases = match released {
            Released::No => None,
            Released::ByAnotherClient => Some(&direct),
            Released::ByItsClient => Some(&locks),
        };
        if let Some(client) = releases {
            assert!(!client.release(&name("r"), &holder, None).await.unwrap());
        }
        let answer = late.deliver().await.unwrap();
        let succeeds = answer.contains(r#""succeeded":true"#);
        assert_eq!(succeeds, released != Released::ByItsClient, "{released:?}: {answer}");
        assert_eq!(direct.status(&name("r")).await.unwrap().held.is_some(), succeeds);
        assert_eq!(direct.release(&name("r"), &holder, None).await.unwrap(), succeeds);
    }
}

/// Sends an attempt, and cuts off its client before etcd receives it.
async fn late_attempt(
    proxy: &Proxy,
    locks: &lock_client::etcd::Etcd,
    holder: &Holder,
    order: Order,
) -> LateRequest {
    let hold = proxy.hold(PUT);
    let (tried, late) =
        tokio::join!(attempt(locks, holder, order), async { hold.caught().await.unwrap().cut() });
    unavailable(tried);
    late
}

#[tokio::test]
async fn waiter_that_arrives_after_its_release_is_not_queued() {
    // The control: without a release, it is.
    for releases in [false, true] {
        let (etcd, proxy, locks) = behind_proxy().await;
        let direct = client(&etcd.url());
        let (_owner, waiter) = (acquired(&direct, &name("r"), secs(60)).await, Holder::random());
        let late = late_attempt(&proxy, &locks, &waiter, Order::Fair).await;
        if releases {
            assert!(!locks.release(&name("r"), &waiter, None).await.unwrap());
        }
        let answer = late.deliver().await.unwrap();
        assert_eq!(answer.contains(r#""succeeded":true"#), !releases, "{answer}");
        assert_eq!(direct.status(&name("r")).await.unwrap().queued, u64::from(!releases));
    }
}

/// A waiter that may be queued later takes two.
#[tokio::test]
async fn release_of_a_waiter_takes_one_request() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    for (loses, waits) in [(false, true), (false, false), (true, true)] {
        let owner = acquired(&locks, &name("r"), secs(60)).await;
        let waiter = Holder::random();
        if loses {
            proxy.lose_reply_to(PUT);
            unavailable(attempt(&locks, &waiter, Order::Fair).await);
        } else {
            busy(attempt(&locks, &waiter, Order::Fair).await);
        }
        if !waits {
            assert!(release(&locks, &owner).await);
            held(attempt(&locks, &waiter, Order::Fair).await);
        }
        let requests = proxy.requests("POST /v3/");
        assert_eq!(locks.release(&name("r"), &waiter, None).await.unwrap(), !waits);
        assert_eq!(proxy.requests("POST /v3/"), requests + 1 + usize::from(loses));
        assert_eq!(release(&locks, &owner).await, waits);
    }
}

/// The next attempt acquires the lock, so that a release of anybody ends it.
#[tokio::test]
async fn attempt_that_arrives_after_the_next_one_acquires_nothing() {
    let (etcd, proxy, locks) = behind_proxy().await;
    let (direct, holder) = (client(&etcd.url()), Holder::random());
    let late = late_attempt(&proxy, &locks, &holder, Order::Unordered).await;
    let lock = held(attempt(&locks, &holder, Order::Unordered).await);
    assert!(release(&direct, &lock).await);
    let answer = late.deliver().await.unwrap();
    assert!(!answer.contains(r#""succeeded":true"#), "{answer}");
    assert_eq!(direct.status(&name("r")).await.unwrap().held, None);
}

/// A session is sealed only when it matters to the attempt's holder. A holder that waited for that
/// would have no answer if etcd has no space.
#[tokio::test]
async fn attempt_without_an_answer_costs_no_other_holder_a_request() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let (holder, x) = (Holder::random(), name("x"));
    for order in [Order::Unordered, Order::Fair] {
        proxy.lose_request(PUT);
        unavailable(locks.try_acquire(&x, &holder, secs(60), Order::Unordered).await);
        let seals = proxy.requests("/v3/kv/put");
        let other = held(attempt(&locks, &Holder::random(), order).await);
        assert!(release(&locks, &other).await);
        // Another lock of the same holder.
        let own = held(attempt(&locks, &holder, order).await);
        assert!(release(&locks, &own).await);
        assert_eq!(proxy.requests("/v3/kv/put"), seals);
        assert!(!locks.release(&x, &holder, None).await.unwrap());
        assert_eq!(proxy.requests("/v3/kv/put"), seals + 1, "the control");
    }
}

/// Its session is sealed, because another attempt of its client had no answer.
#[tokio::test]
async fn attempt_on_a_session_that_was_just_sealed_is_repeated() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let holder = Holder::random();
    // Both attempts find this one.
    acquired(&locks, &name("first"), secs(60)).await;
    let hold = proxy.hold(PUT);
    let seals = async {
        let attempt = hold.caught().await.unwrap();
        proxy.lose_reply_to(PUT);
        unavailable(locks.try_acquire(&name("x"), &holder, secs(60), Order::Unordered).await);
        assert!(locks.release(&name("x"), &holder, None).await.unwrap());
        attempt.deliver();
    };
    let (tried, ()) = tokio::join!(attempt(&locks, &holder, Order::Unordered), seals);
    held(tried);
}

/// A late move would give the key a lease that ends before the next attempt's.
#[tokio::test]
async fn move_that_arrives_after_the_next_one_fails() {
    let (etcd, proxy, locks) = behind_proxy().await;
    let direct = client(&etcd.url());
    // The control: without another attempt, it succeeds.
    for repeats in [false, true] {
        let (first, waiter) = (acquired(&direct, &name("r"), secs(60)).await, Holder::random());
        busy(attempt(&locks, &waiter, Order::Fair).await);
        assert!(release(&direct, &first).await);
        let late = late_attempt(&proxy, &locks, &waiter, Order::Fair).await;
        if repeats {
            held(attempt(&locks, &waiter, Order::Fair).await);
        }
        let answer = late.deliver().await.unwrap();
        assert_eq!(answer.contains(r#""succeeded":true"#), !repeats, "{answer}");
        assert!(direct.release(&name("r"), &waiter, None).await.unwrap());
    }
}

//! Requests whose replies are lost, and requests that arrive late.

use fence::Holder;
use lock_client::{
    Order,
    backend::{Backend, BackendError},
};
use testbed::{Etcd, Proxy};

use super::service::{acquired, attempt, client, held, release, secs, until_free};
use crate::names::name;

const GRANT: &str = "/v3/lease/grant";
const KEEP_ALIVE: &str = "/v3/lease/keepalive";
const REVOKE: &str = "/v3/lease/revoke";
const TRANSACTION: &str = "/v3/kv/txn";

/// An etcd behind a proxy, and a client that connects through it.
async fn behind_a_proxy() -> (Etcd, Proxy, lock_client::etcd::Etcd) {
    let etcd = Etcd::start().await.unwrap();
    let proxy = Proxy::start(etcd.address(0)).await.unwrap();
    let locks = client(&proxy.url("etcd"));
    (etcd, proxy, locks)
}

fn unavailable<T: std::fmt::Debug>(answer: Result<T, BackendError>) {
    assert!(matches!(answer, Err(BackendError::Unavailable(_))), "{answer:?}");
}

#[tokio::test]
async fn attempt_without_an_answer_is_repeated_with_the_same_token() {
    for (order, lost) in [
        (Order::Unordered, GRANT),
        (Order::Unordered, TRANSACTION),
        (Order::Fair, KEEP_ALIVE),
        (Order::Fair, GRANT),
        (Order::Fair, TRANSACTION),
    ] {
        let (etcd, proxy, locks) = behind_a_proxy().await;
        let holder = Holder::random();
        proxy.lose_reply_to(lost);
        unavailable(attempt(&locks, &holder, order).await);
        assert!(proxy.has_struck());
        let direct = client(&etcd.url());
        let before = direct.status(&name("r")).await.unwrap().held;
        assert_eq!(before.is_some(), lost == TRANSACTION, "what was lost is the reply");
        let lock = held(attempt(&locks, &holder, order).await);
        if let Some(before) = before {
            assert_eq!((before.token, before.ownership), (lock.token, lock.ownership.clone()));
        }
        let leases = etcd.etcdctl(&["lease", "list"]).await.unwrap();
        // A fair owner has the lease of a waiter, too.
        let expected = if order == Order::Fair { "found 2 leases" } else { "found 1 leases" };
        assert!(leases.contains(expected), "{order:?} {lost}: {leases}");
        assert!(release(&locks, &lock).await);
    }
}

#[tokio::test]
async fn renewal_reissue_and_release_without_an_answer_are_repeated() {
    let (etcd, proxy, locks) = behind_a_proxy().await;
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    for lost in [KEEP_ALIVE, TRANSACTION] {
        proxy.lose_reply_to(lost);
        unavailable(locks.renew(&name("r"), &lock.ownership, secs(60)).await);
        let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
        assert_eq!(renewed.unwrap(), Some(lock.token));
    }
    // The text of the request that writes.
    proxy.lose_reply_to("request_put");
    unavailable(locks.reissue(&name("r"), &lock.ownership, lock.token).await);
    let direct = client(&etcd.url());
    let unheard = direct.status(&name("r")).await.unwrap().held.unwrap().token;
    assert!(unheard > lock.token);
    let reissued = locks.reissue(&name("r"), &lock.ownership, lock.token).await.unwrap();
    assert!(reissued > Some(unheard));
    for lost in [TRANSACTION, REVOKE] {
        proxy.lose_reply_to(lost);
        unavailable(locks.release(&name("r"), &lock.ownership.holder, reissued).await);
    }
    assert!(!locks.release(&name("r"), &lock.ownership.holder, reissued).await.unwrap());
    until_free(&direct).await;
    assert!(proxy.has_struck());
}

#[tokio::test]
async fn attempt_that_arrives_after_its_release_acquires_nothing() {
    let (etcd, proxy, locks) = behind_a_proxy().await;
    let direct = client(&etcd.url());
    // The control: without a release, it acquires.
    for releases in [false, true] {
        let holder = Holder::random();
        let hold = proxy.hold(TRANSACTION);
        let (tried, late) = tokio::join!(attempt(&locks, &holder, Order::Unordered), async {
            hold.caught().await.unwrap().cut()
        });
        unavailable(tried);
        if releases {
            assert!(!direct.release(&name("r"), &holder, None).await.unwrap());
        }
        let answer = late.deliver().await.unwrap();
        assert_eq!(answer.contains("requested lease not found"), releases, "{answer}");
        let holds = direct.status(&name("r")).await.unwrap().held.is_some();
        assert_eq!(holds, !releases);
        if holds {
            assert!(direct.release(&name("r"), &holder, None).await.unwrap());
        }
    }
}

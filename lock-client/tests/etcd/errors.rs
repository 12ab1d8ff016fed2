//! Errors that no repetition mends say what is wrong, and where.

use fence::Holder;
use lock_client::{
    Order,
    backend::{Backend, BackendError},
    etcd,
};
use testbed::{Etcd, Proxy, wait::until_async};

use super::service::{SOON, acquired, attempt, client, held, release, secs};
use crate::{lock_service::with_causes, names::name};

async fn error(url: &str) -> BackendError {
    attempt(&client(url), &Holder::random(), Order::Unordered).await.expect_err("it is rejected")
}

/// Returns the reason of a rejection.
async fn rejected(url: &str) -> String {
    match error(url).await {
        BackendError::Rejected(reason) => reason.to_string(),
        other => panic!("{}", with_causes(&other)),
    }
}

#[tokio::test]
async fn users_need_their_password_and_the_permission() {
    let mut etcd = Etcd::start().await.unwrap();
    etcd.require_users().await.unwrap();
    let address = etcd.address(0);
    let url = |user: &str| format!("etcd://{user}{address}");
    for (user, reason) in [
        ("locker:wrong@", "etcdserver: authentication failed, invalid user ID or password"),
        ("guest:p%40ss@", "etcdserver: permission denied"),
        ("", "etcdserver: user name is empty"),
    ] {
        assert_eq!(rejected(&url(user)).await, format!("{address}: {reason}"));
    }
    let locks = client(&url("locker:p%40ss@"));
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    // A restart ends all logins.
    etcd.restart().await.unwrap();
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
    assert_eq!(renewed.unwrap(), Some(lock.token));
    // Watches log in too.
    let waiter = Holder::random();
    let wakeups = locks.subscribe(&name("r"), &waiter, Order::Unordered).await.unwrap();
    let debug = format!("{locks:?} {}", locks.address());
    assert!(!debug.contains("p@ss") && !debug.contains("p%40ss"), "{debug}");
    assert!(release(&locks, &lock).await);
    tokio::time::timeout(SOON, wakeups.next()).await.expect("the waiter is notified");
}

#[tokio::test]
async fn encrypted_connections_need_a_trusted_certificate() {
    let etcd = Etcd::start_tls().await.unwrap();
    let address = etcd.address(0);
    let locks = client(&format!("{}?tls-ca={}", etcd.url(), etcd.ca_file().display()));
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    assert!(release(&locks, &lock).await);
    let reason = rejected(&etcd.url()).await;
    let expected = format!("{address}: the encrypted connection failed: ");
    assert!(reason.starts_with(&expected) && reason.contains("UnknownIssuer"), "{reason}");
    assert!(!reason.contains("does this port"), "it does: {reason}");
}

#[tokio::test]
async fn client_with_a_certificate_may_lock() {
    let etcd = Etcd::start_mutual_tls().await.unwrap();
    let trusted = format!("{}?tls-ca={}", etcd.url(), etcd.ca_file().display());
    let (certificate, key) = etcd.client_certificate();
    let (certificate, key) = (certificate.display(), key.display());
    let locks = client(&format!("{trusted}&tls-cert={certificate}&tls-key={key}"));
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let waiter = Holder::random();
    let wakeups = locks.subscribe(&name("r"), &waiter, Order::Unordered).await.unwrap();
    assert!(release(&locks, &lock).await);
    tokio::time::timeout(SOON, wakeups.next()).await.expect("watches are encrypted too");
    // The control. The server's rejection may come after the client's request, or end it.
    let rejected_for_its_certificate = async || {
        let rejected = with_causes(&error(&trusted).await);
        Ok(rejected.contains("CertificateRequired") || rejected.contains("BadCertificate"))
    };
    until_async(SOON, rejected_for_its_certificate).await.unwrap();
}

#[tokio::test]
async fn wrong_scheme_is_named_in_the_error() {
    let (plain, encrypted) = (Etcd::start().await.unwrap(), Etcd::start_tls().await.unwrap());
    let ca = encrypted.ca_file();
    let tls_to_plain = format!("etcds://{}?tls-ca={}", plain.address(0), ca.display());
    let plain_to_tls = format!("etcd://{}", encrypted.address(0));
    for (url, address, hint) in [
        (tls_to_plain, plain.address(0), "does this port take TLS?"),
        (plain_to_tls, encrypted.address(0), "does this port take TLS only?"),
    ] {
        let text = with_causes(&error(&url).await);
        assert!(text.contains(&address.to_string()) && text.contains(hint), "{text}");
    }
}

#[tokio::test]
async fn etcd_that_is_down_is_unavailable() {
    let mut etcd = Etcd::start().await.unwrap();
    etcd.process(0).kill().unwrap();
    let address = etcd.address(0);
    let text = with_causes(&error(&etcd.url()).await);
    let expected = "the lock service is unavailable";
    assert!(text.starts_with(&format!("{expected}: {address}: ")), "{text}");
    assert!(text.contains("refused") && !text.contains("TLS"), "{text}");
    assert!(etcd::Etcd::open("http://n1").is_err());
}

/// The transaction that shows the offset has put the key of the holder.
#[tokio::test]
async fn attempt_is_not_rejected_after_it_was_carried_out() {
    let etcd = Etcd::start().await.unwrap();
    etcd.etcdctl(&["put", "fenced/r/offset", "foreign"]).await.unwrap();
    let locks = client(&etcd.url());
    let holder = Holder::random();
    let error = attempt(&locks, &holder, Order::Unordered).await.unwrap_err();
    assert!(matches!(error, BackendError::Unavailable(_)), "{}", with_causes(&error));
    let reason = with_causes(&error);
    assert!(reason.contains("etcd's key fenced/r/offset holds nothing of ours"), "{reason}");
    let keys = async || etcd.etcdctl(&["get", "--prefix", "fenced/r/queue/"]).await.unwrap();
    assert!(keys().await.contains(holder.as_str()), "the control: it has a key");
    // Its release needs no offset. A status changes nothing.
    assert!(locks.release(&name("r"), &holder, None).await.unwrap());
    assert_eq!(keys().await, "");
    let status = locks.status(&name("r")).await;
    assert!(matches!(status, Err(BackendError::Rejected(_))), "{status:?}");
}

/// The keep-alive before the read has set the full time.
#[tokio::test]
async fn renewal_is_not_rejected_after_it_was_carried_out() {
    let etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    etcd.etcdctl(&["put", "fenced/r/offset", "foreign"]).await.unwrap();
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
    assert!(matches!(renewed, Err(BackendError::Unavailable(_))), "{renewed:?}");
    // The control: a reissue reads first, and has changed nothing.
    let reissued = locks.reissue(&name("r"), &lock.ownership, lock.token).await;
    assert!(matches!(reissued, Err(BackendError::Rejected(_))), "{reissued:?}");
}

/// A learner rejects all that a lock needs.
#[tokio::test]
async fn learner_is_left_at_once() {
    let mut etcd = Etcd::start().await.unwrap();
    let learner = etcd.add_learner().await.unwrap();
    let alone =
        attempt(&client(&format!("etcd://{learner}")), &Holder::random(), Order::Fair).await;
    let rejected = with_causes(&alone.unwrap_err());
    assert!(rejected.contains("not supported for learner"), "{rejected}");
    let locks = client(&format!("etcd://{learner},{}", etcd.address(0)));
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    assert!(release(&locks, &lock).await);
}

/// Fills an etcd with a quota, so that it stores nothing more.
pub(super) async fn fill(etcd: &Etcd) {
    let value = "x".repeat(50_000);
    let rejected = loop {
        if let Err(rejected) = etcd.etcdctl(&["put", "other", &value]).await {
            break rejected.to_string();
        }
    };
    assert!(rejected.contains("database space exceeded"), "{rejected}");
}

/// etcd still deletes keys then.
#[tokio::test]
async fn etcd_without_space_lets_locks_be_released() {
    for is_lost in [false, true] {
        let etcd = Etcd::start_with(&["--quota-backend-bytes=1000000"]).await.unwrap();
        let proxy = Proxy::start(etcd.address(0)).await.unwrap();
        let (locks, direct) = (client(&proxy.url("etcd")), client(&etcd.url()));
        acquired(&locks, &name("first"), secs(60)).await;
        let lock = acquired(&locks, &name("r"), secs(60)).await;
        let (other_name, other_holder) = (name("other"), Holder::random());
        let other = async || {
            let tried =
                locks.try_acquire(&other_name, &other_holder, secs(60), Order::Unordered).await;
            assert!(matches!(tried, Err(BackendError::Unavailable(_))), "{tried:?}");
            with_causes(&tried.unwrap_err())
        };
        if is_lost {
            proxy.lose_request("request_put");
            other().await;
        }
        fill(&etcd).await;
        if !is_lost {
            let rejected = other().await;
            assert!(rejected.contains("database space exceeded"), "{rejected}");
        }
        assert!(release(&locks, &lock).await);
        assert_eq!(direct.status(&name("r")).await.unwrap().held, None);
        // The control: an attempt whose request was lost may still arrive, and no session can be
        // sealed.
        let undone = locks.release(&other_name, &other_holder, None).await;
        assert_eq!(matches!(undone, Err(BackendError::Unavailable(_))), is_lost, "{undone:?}");
        assert_eq!(undone.is_ok(), !is_lost, "{undone:?}");
    }
}

/// It can't seal a session, but shows what the attempt has stored.
#[tokio::test]
async fn etcd_without_space_shows_what_an_attempt_without_an_answer_has_acquired() {
    for order in [Order::Unordered, Order::Fair] {
        for repeats in [false, true] {
            let etcd = Etcd::start_with(&["--quota-backend-bytes=1000000"]).await.unwrap();
            let proxy = Proxy::start(etcd.address(0)).await.unwrap();
            let (locks, direct) = (client(&proxy.url("etcd")), client(&etcd.url()));
            let holder = Holder::random();
            proxy.lose_reply_to("request_put");
            let lost = attempt(&locks, &holder, order).await;
            assert!(matches!(lost, Err(BackendError::Unavailable(_))), "{lost:?}");
            fill(&etcd).await;
            let status = async || direct.status(&name("r")).await.unwrap().held.unwrap();
            let stored = status().await;
            let mut token = None;
            if repeats {
                let lock = held(attempt(&locks, &holder, order).await);
                assert_eq!((lock.token, &lock.ownership), (stored.token, &stored.ownership));
                let ends = lock.asked + secs(60).as_duration();
                assert!(ends.remaining() <= status().await.remaining.unwrap());
                token = Some(lock.token);
            }
            assert!(locks.release(&name("r"), &holder, token).await.unwrap());
            assert_eq!(direct.status(&name("r")).await.unwrap().held, None);
        }
    }
}

/// The key is deleted, and can't be made again.
#[tokio::test]
async fn etcd_without_space_lets_a_waiter_without_an_answer_leave() {
    let etcd = Etcd::start_with(&["--quota-backend-bytes=1000000"]).await.unwrap();
    let proxy = Proxy::start(etcd.address(0)).await.unwrap();
    let (locks, direct) = (client(&proxy.url("etcd")), client(&etcd.url()));
    let (owner, waiter) = (acquired(&direct, &name("r"), secs(60)).await, Holder::random());
    proxy.lose_reply_to("request_put");
    let lost = attempt(&locks, &waiter, Order::Fair).await;
    assert!(matches!(lost, Err(BackendError::Unavailable(_))), "{lost:?}");
    fill(&etcd).await;
    assert_eq!(direct.status(&name("r")).await.unwrap().queued, 1, "the control");
    assert!(!locks.release(&name("r"), &waiter, None).await.unwrap());
    assert_eq!(direct.status(&name("r")).await.unwrap().queued, 0);
    assert!(release(&direct, &owner).await);
}

#[tokio::test]
async fn etcd_without_space_renews_locks() {
    let etcd = Etcd::start_with(&["--quota-backend-bytes=1000000"]).await.unwrap();
    let locks = client(&etcd.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    fill(&etcd).await;
    let renew = async |ttl| locks.renew(&name("r"), &lock.ownership, ttl).await;
    assert_eq!(renew(secs(60)).await.unwrap(), Some(lock.token));
    // The control: a longer ttl needs another session.
    let rejected = renew(secs(90)).await;
    assert!(matches!(rejected, Err(BackendError::Unavailable(_))), "{rejected:?}");
}

//! Errors that no repetition mends say what is wrong, and where.

use fence::Holder;
use futures_util::TryStreamExt;
use lock_client::{
    Order,
    backend::{Backend, BackendError},
    zookeeper,
};
use testbed::{ZooKeeper, wait::until_async};
use tokio::{io::AsyncWriteExt, net::TcpListener, time::timeout};

use super::service::{SOON, acquired, attempt, client, held, own_node, release, secs};
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
async fn nodes_of_a_user_are_no_other_users() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let address = zookeeper.address(0);
    let url = |user: &str| format!("zookeeper://{user}{address}");
    let locks = client(&url("locker:p%40ss@"));
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let reissued = locks.reissue(&name("r"), &lock.ownership, lock.token).await.unwrap();
    for user in ["locker:wrong@", "guest:p%40ss@", ""] {
        let expected = format!("{address}: no permission: the nodes belong to another user");
        assert_eq!(rejected(&url(user)).await, expected, "{user}");
        let other = client(&url(user));
        for answer in [
            other.renew(&name("r"), &lock.ownership, secs(60)).await.map(drop),
            other.reissue(&name("r"), &lock.ownership, lock.token).await.map(drop),
            other.release(&name("r"), &lock.ownership.holder, None).await.map(drop),
            other.status(&name("r")).await.map(drop),
        ] {
            assert!(matches!(answer, Err(BackendError::Rejected(_))), "{user}: {answer:?}");
        }
    }
    let again = client(&url("locker:p%40ss@"));
    let renewed = again.renew(&name("r"), &lock.ownership, secs(60)).await;
    assert_eq!(renewed.unwrap(), reissued);
    let waiter = Holder::random();
    let wakeups = again.subscribe(&name("r"), &waiter, Order::Unordered).await.unwrap();
    let debug = format!("{locks:?} {}", locks.address());
    assert!(!debug.contains("p@ss") && !debug.contains("p%40ss"), "{debug}");
    assert!(release(&locks, &lock).await);
    timeout(SOON, wakeups.next()).await.expect("the waiter is notified");
}

/// The connection before the check has set the full time of the session.
#[tokio::test]
async fn renewal_whose_check_is_rejected_is_not_rejected() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let node = own_node(&zookeeper).await;
    zookeeper.cli(&["setAcl", &node, "digest:other:secret:cdrwa"]).await.unwrap();
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
    assert!(matches!(renewed, Err(BackendError::Unavailable(_))), "{renewed:?}");
    // The control: another client looks first, and has changed nothing.
    let renewed = client(&zookeeper.url()).renew(&name("r"), &lock.ownership, secs(60)).await;
    assert!(matches!(renewed, Err(BackendError::Rejected(_))), "{renewed:?}");
}

/// Nothing was made, and the session is the client's.
#[tokio::test]
async fn attempts_whose_node_is_rejected_leave_nothing() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    // An empty container would be deleted.
    zookeeper.cli(&["create", "/fenced/queues/r/nobody"]).await.unwrap();
    assert!(release(&locks, &lock).await);
    zookeeper.cli(&["setAcl", "/fenced/queues/r", "world:anyone:ra"]).await.unwrap();
    let holder = Holder::random();
    for _ in 0..2 {
        let tried = attempt(&locks, &holder, Order::Unordered).await;
        assert!(matches!(tried, Err(BackendError::Rejected(_))), "{tried:?}");
    }
    zookeeper.cli(&["setAcl", "/fenced/queues/r", "world:anyone:cdrwa"]).await.unwrap();
    held(attempt(&locks, &holder, Order::Unordered).await);
}

#[tokio::test]
async fn root_must_exist_and_separates_locks() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let below = format!("{}/apps/a", zookeeper.url());
    let expected =
        format!("ZooKeeper {}/apps/a: the node /apps/a does not exist", zookeeper.address(0));
    assert_eq!(rejected(&below).await, expected);
    // No lock is held below it, but none is free.
    let absent = client(&below);
    let status = absent.status(&name("r")).await.map(drop);
    let listed = absent.held_names("").try_next().await.map(drop);
    for answer in [status, listed] {
        assert!(matches!(answer, Err(BackendError::Rejected(_))), "{answer:?}");
    }
    zookeeper.cli(&["create", "/apps"]).await.unwrap();
    zookeeper.cli(&["create", "/apps/a"]).await.unwrap();
    let (inside, outside) = (client(&below), client(&zookeeper.url()));
    let lock = acquired(&inside, &name("r"), secs(60)).await;
    acquired(&outside, &name("r"), secs(60)).await;
    let nodes = zookeeper.cli(&["ls", "-R", "/apps"]).await.unwrap();
    assert!(nodes.contains("/apps/a/fenced/queues/r/holder-"), "{nodes}");
    let waiter = Holder::random();
    let wakeups = inside.subscribe(&name("r"), &waiter, Order::Unordered).await.unwrap();
    assert!(release(&inside, &lock).await);
    timeout(SOON, wakeups.next()).await.expect("the waiter is notified");
}

#[tokio::test]
async fn zookeeper_that_is_down_is_unavailable() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    zookeeper.process(0).kill().unwrap();
    let text = with_causes(&error(&zookeeper.url()).await);
    let expected = format!("the lock service is unavailable: {}: ", zookeeper.address(0));
    assert!(text.starts_with(&expected) && text.contains("refused"), "{text}");
    assert!(zookeeper::ZooKeeper::open("http://n1").is_err());
}

#[tokio::test]
async fn encrypted_connections_need_a_trusted_certificate() {
    let zookeeper = ZooKeeper::start_tls().await.unwrap();
    let address = zookeeper.address(0);
    let locks = client(&format!("{}?tls-ca={}", zookeeper.url(), zookeeper.ca_file().display()));
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let waiter = Holder::random();
    let wakeups = locks.subscribe(&name("r"), &waiter, Order::Unordered).await.unwrap();
    assert!(release(&locks, &lock).await);
    timeout(SOON, wakeups.next()).await.expect("watches are encrypted too");
    let reason = rejected(&zookeeper.url()).await;
    let expected = format!("{address}: the encrypted connection failed: ");
    assert!(reason.starts_with(&expected) && reason.contains("UnknownIssuer"), "{reason}");
    assert!(!reason.contains("does this port"), "it does: {reason}");
}

#[tokio::test]
async fn client_with_a_certificate_may_lock() {
    let zookeeper = ZooKeeper::start_mutual_tls().await.unwrap();
    let trusted = format!("{}?tls-ca={}", zookeeper.url(), zookeeper.ca_file().display());
    let (certificate, key) = zookeeper.client_certificate();
    let (certificate, key) = (certificate.display(), key.display());
    let locks = client(&format!("{trusted}&tls-cert={certificate}&tls-key={key}"));
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    assert!(release(&locks, &lock).await);
    // The control. The server's rejection comes after the client's first message, or ends it.
    let rejected_for_its_certificate = async || {
        let rejected = with_causes(&error(&trusted).await);
        Ok(rejected.contains("CertificateRequired") || rejected.contains("BadCertificate"))
    };
    until_async(SOON, rejected_for_its_certificate).await.unwrap();
}

#[tokio::test]
async fn wrong_scheme_is_named_in_the_error() {
    let zookeeper = ZooKeeper::start_tls().await.unwrap();
    let (plain, secure) = (zookeeper.plain_address(0), zookeeper.address(0));
    let tls_to_plain = format!("zookeepers://{plain}?tls-ca={}", zookeeper.ca_file().display());
    for (url, address, hint) in [
        (tls_to_plain, plain, "does this port take TLS?"),
        (format!("zookeeper://{secure}"), secure, "does this port take TLS only?"),
    ] {
        let text = with_causes(&error(&url).await);
        assert!(text.contains(&address.to_string()) && text.contains(hint), "{text}");
    }
}

/// Servers of other kinds answer with something else, or not at all.
#[tokio::test]
async fn server_that_is_no_zookeeper_is_unavailable() {
    for answer in [&b"-ERR unknown command\r\n"[..], &[0, 0, 0, 2, 1, 1], &[0xff; 64], &[]] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // The client may have left.
                let _ = stream.write_all(answer).await;
            }
        });
        let error = error(&format!("zookeeper://{address}")).await;
        let text = with_causes(&error);
        assert!(matches!(error, BackendError::Unavailable(_)), "{text}");
        server.abort();
    }
}

/// Other nodes in the queue are nobody's places.
#[tokio::test]
async fn foreign_nodes_in_the_queue_are_left_alone() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    zookeeper.cli(&["create", "/fenced/queues/r/lock-0000000000", "x"]).await.unwrap();
    assert!(release(&locks, &lock).await);
    let next = acquired(&locks, &name("r"), secs(60)).await;
    assert!(release(&locks, &next).await);
    // Nodes that look like places, and can't be read, may be owners.
    for node in ["me", "me+x", "%ff", ""] {
        let path = format!("/fenced/queues/r/holder-{node}");
        zookeeper.cli(&["create", &path, "x"]).await.unwrap();
        let reason = rejected(&zookeeper.url()).await;
        assert!(reason.contains("holds nothing of ours"), "{node}: {reason}");
        zookeeper.cli(&["delete", &path]).await.unwrap();
    }
    acquired(&locks, &name("r"), secs(60)).await;
}

/// The connection before the read has set the full time.
#[tokio::test]
async fn renewal_is_not_rejected_after_it_was_carried_out() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    zookeeper.cli(&["create", "/fenced/offsets/r", "foreign"]).await.unwrap();
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await;
    assert!(matches!(renewed, Err(BackendError::Unavailable(_))), "{renewed:?}");
    // The control: a reissue reads first, and has changed nothing.
    let reissued = locks.reissue(&name("r"), &lock.ownership, lock.token).await;
    assert!(matches!(reissued, Err(BackendError::Rejected(_))), "{reissued:?}");
    // A release needs no look.
    assert!(release(&locks, &lock).await);
    let nodes = zookeeper.ephemeral_nodes().await.unwrap();
    assert!(!nodes.contains("/fenced"), "{nodes}");
}

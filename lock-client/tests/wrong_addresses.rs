//! URLs that name something else than they say, and passwords that are wrong.

use std::time::Duration;

use lock_client::AcquireError;
use testbed::{Redis, RedisCluster, Sentinels};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    lock_service::{locks, tried, ttl, with_causes},
    names::name,
    redis_kinds::ACL,
};

/// Checks that an acquire, which may wait for ever, is rejected at once, for this reason.
#[track_caller]
fn assert_rejected(url: &str, reason: &str, outcome: Result<lock_client::Lease, AcquireError>) {
    let error = outcome.expect_err("it is rejected");
    assert!(matches!(error, AcquireError::Rejected { .. }), "{url}: {error:?}");
    assert!(with_causes(&error).contains(reason), "{url}: {}", with_causes(&error));
}

async fn acquire(url: &str) -> Result<lock_client::Lease, AcquireError> {
    locks(url).acquire(&name("r"), ttl(60_000)).await
}

#[tokio::test]
async fn node_of_a_cluster_that_is_named_alone_is_rejected() {
    let mut cluster = RedisCluster::start().await.unwrap();
    for node in cluster.nodes() {
        let url = node.url();
        assert_rejected(&url, "name it by redis+cluster://", acquire(&url).await);
    }
}

#[tokio::test]
async fn sentinel_that_is_named_as_a_redis_is_rejected() {
    let mut world = Sentinels::start().await.unwrap();
    let url = world.sentinels()[0].url();
    assert_rejected(&url, "this is a Sentinel, which keeps no locks", acquire(&url).await);
}

#[tokio::test]
async fn redis_that_is_named_as_a_sentinel_is_rejected() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let address = redis.address().unwrap();
    let url = format!("redis+sentinel://{address}/locks");
    let reason = format!("{address} is a Redis, and no Sentinel");
    assert_rejected(&url, &reason, acquire(&url).await);
}

#[tokio::test]
async fn wrong_password_of_a_cluster_is_rejected() {
    let mut cluster = RedisCluster::start().await.unwrap();
    for node in cluster.nodes() {
        let user = ["ACL", "SETUSER", "locker", "on", ">secret", "~*", "&*", "+@all"];
        let _: String = node.command(&user).await.unwrap();
    }
    let url = |user| cluster.url().replace("://", &format!("://{user}@"));
    let right = locks(&url("locker:secret"));
    right.acquire(&name("r"), tried(60_000)).await.unwrap().release().await.unwrap();
    let wrong = url("locker:wrong");
    assert_rejected(&wrong, "uthentication", acquire(&wrong).await);
    let without = cluster.url();
    for node in cluster.nodes() {
        let user = ["ACL", "SETUSER", "default", "resetpass"];
        let _: String = node.command(&user).await.unwrap();
    }
    assert_rejected(&without, "NOAUTH", acquire(&without).await);
}

#[tokio::test]
async fn wrong_password_of_a_primary_or_its_sentinels_is_rejected() {
    let mut world = Sentinels::start().await.unwrap();
    // The rights of the users, as `lock-client/README.md` lists them.
    let rights: Vec<_> = ACL.split_whitespace().collect();
    let user = [&["ACL", "SETUSER", "locker", "on", ">secret"], &rights[..]].concat();
    let _: String = world.primary().command(&user).await.unwrap();
    let url = |user| world.url().replace("://", &format!("://{user}@"));
    let (right, wrong) = (url("locker:secret"), url("locker:wrong"));
    assert_rejected(&wrong, "uthentication", acquire(&wrong).await);
    assert_rejected(&right, "role", acquire(&right).await);
    let _: String = world.primary().command(&["ACL", "SETUSER", "locker", "+role"]).await.unwrap();
    acquire(&right).await.unwrap().release().await.unwrap();

    for sentinel in world.sentinels() {
        let rights = ["on", ">guarded", "-@all", "+sentinel|masters"];
        let user = [&["ACL", "SETUSER", "watcher"], &rights[..]].concat();
        let _: String = sentinel.command(&user).await.unwrap();
        let _: String = sentinel.command(&["ACL", "SETUSER", "default", "off"]).await.unwrap();
    }
    assert_rejected(&right, "NOAUTH", acquire(&right).await);
    let wrong = format!("{right}?sentinel-user=watcher&sentinel-password=wrong");
    assert_rejected(&wrong, "uthentication", acquire(&wrong).await);
    let right = format!("{right}?sentinel-user=watcher&sentinel-password=guarded");
    acquire(&right).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn port_of_another_kind_is_named() {
    let plain = Redis::start_on_tcp(&[]).await.unwrap();
    let encrypted = Redis::start_tls().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let _ = connection.read(&mut [0; 1024]).await;
            let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    for (url, reason) in [
        (plain.url().replace("redis://", "rediss://"), "takes no encrypted connections"),
        (encrypted.url().replace("rediss://", "redis://"), "takes only encrypted connections"),
        (format!("redis://{http}"), "an HTTP server is at this port"),
        (format!("rediss://{http}"), "an HTTP server is at this port"),
    ] {
        assert_rejected(&url, reason, acquire(&url).await);
    }
}

/// A Redis that does not answer is no other server.
#[tokio::test]
async fn redis_that_hangs_is_unavailable() {
    let mut redis = Redis::start_on_tcp(&[]).await.unwrap();
    redis.process().pause().await.unwrap();
    let terms = lock_client::Terms::new(ttl(60_000)).wait(Duration::from_millis(100));
    let outcome = locks(&redis.url()).acquire(&name("r"), terms).await;
    assert!(matches!(outcome, Err(AcquireError::Unavailable { .. })), "{outcome:?}");
    redis.process().resume().unwrap();
}

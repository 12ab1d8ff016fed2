//! Who holds a lock: labels, the list of held locks, and locks that an operator breaks.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use fence::Holder;
use futures_util::{StreamExt, TryStreamExt, stream};
use lock_client::{
    Locks, Order, Terms,
    backend::{Attempt, Backend},
};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};
use testbed::{Redis, RedisCluster};
use tokio::time::timeout;

use crate::{
    etcd,
    lock_service::{lasting, locks, tried, ttl},
    names::name,
    zookeeper,
};

async fn held_names(url: &str, prefix: &str) -> BTreeSet<String> {
    let pages: Vec<_> = locks(url).held_names(prefix).try_collect().await.unwrap();
    pages.iter().flatten().map(ToString::to_string).collect()
}

#[tokio::test]
async fn label_and_time_of_the_grant_stand_beside_the_lock() {
    let redis = Redis::start().await.unwrap();
    let labelled =
        lock_client::redis::Redis::open(&redis.url()).unwrap().label("web-3\n (pid 812)");
    let labelled = Locks::new(labelled);
    let unix_ms = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let before = unix_ms();
    let lease = labelled.acquire(&name("r"), tried(60_000)).await.unwrap();
    // A reissue and a renewal leave them as they are.
    lease.reissue(lease.token().unwrap()).await.unwrap();
    lease.renew().await.unwrap();
    let held = locks(&redis.url()).status(&name("r")).await.unwrap().held.unwrap();
    assert_eq!(held.label, "web-3  (pid 812)");
    let since = held.since_ms.unwrap();
    assert!((before..=unix_ms()).contains(&since), "{since}");
    assert_eq!(&held.ownership, lease.ownership(), "the label is no part of the holder");
    lease.release().await.unwrap();
}

#[tokio::test]
async fn held_locks_are_listed_by_their_prefix() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    let mut leases = Vec::new();
    for lock in ["orders/1", "orders/{2}%", "orders*", "invoices/1"] {
        leases.push(locks.acquire(&name(lock), lasting()).await.unwrap());
    }
    // A counter is left of this one.
    locks.acquire(&name("orders/3"), lasting()).await.unwrap().release().await.unwrap();
    let url = redis.url();
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(held_names(&url, "orders/").await, set(&["orders/1", "orders/{2}%"]));
    assert_eq!(held_names(&url, "orders*").await, set(&["orders*"]));
    assert_eq!(held_names(&url, "").await.len(), 4);
    assert_eq!(held_names(&url, "none").await.len(), 0);
}

#[tokio::test]
async fn held_locks_of_a_cluster_are_listed_from_all_primaries() {
    let cluster = RedisCluster::start().await.unwrap();
    let locks = locks(&cluster.url());
    let mut leases = Vec::new();
    for number in 0..50 {
        leases.push(locks.acquire(&name(&format!("r{number}")), lasting()).await.unwrap());
    }
    assert_eq!(held_names(&cluster.url(), "r").await.len(), 50);
}

#[tokio::test]
async fn lock_is_broken_only_with_its_owners_token() {
    let redis = Redis::start().await.unwrap();
    let (owner, other) = (locks(&redis.url()), locks(&redis.url()));
    let lease = owner.acquire(&name("r"), lasting()).await.unwrap();
    let token = lease.token().unwrap();
    let waiting = other.clone();
    let waiter = tokio::spawn(async move { waiting.acquire(&name("r"), ttl(60_000)).await });
    let before: fence::Token = (token.as_u64() - 1).to_string().parse().unwrap();
    assert!(!other.break_lock(&name("r"), before).await.unwrap());
    lease.renew().await.expect("another token's lock is left alone");
    assert!(other.break_lock(&name("r"), token).await.unwrap());
    let next = waiter.await.unwrap().expect("the waiter is notified");
    assert!(next.token().unwrap() > token);
    lease.renew().await.expect_err("the former owner has lost the lease");
    assert!(!other.break_lock(&name("r"), token).await.unwrap());
    next.release().await.unwrap();
    let free = other.acquire(&name("r"), Terms::new(ttl(60_000)).no_wait()).await.unwrap();
    free.release().await.unwrap();
}

/// Acquires more locks than fit into a page, and reads the names.
async fn check_pages(backend: impl Backend + Clone, count: usize) {
    let (locks, holder) = (Locks::new(backend.clone()), &Holder::random());
    let lock = |number| name(&format!("pages/{number}"));
    let acquiring = stream::iter(0..count).for_each_concurrent(4, async |number| {
        let attempt =
            backend.try_acquire(&lock(number), holder, ttl(600_000), Order::Unordered).await;
        assert!(matches!(attempt, Ok(Attempt::Granted { .. })), "{attempt:?}");
    });
    acquiring.await;
    let pages: Vec<_> = locks.held_names("pages/").try_collect().await.unwrap();
    assert!(pages.len() > 2, "{} pages", pages.len());
    let names: Vec<_> = pages.into_iter().flatten().collect();
    assert_eq!(names.len(), count, "each comes once");
    let names: BTreeSet<_> = names.into_iter().collect();
    assert_eq!(names, (0..count).map(lock).collect());
}

#[tokio::test]
async fn names_on_every_page_are_listed() {
    let (_postgres, locks) = crate::postgres::locked().await;
    check_pages(locks, 230).await;
    let (_mariadb, locks) = crate::mariadb::locked().await;
    check_pages(locks, 230).await;
    let (_folder, locks) = crate::sqlite::locked().await;
    check_pages(locks, 230).await;
    let server = testbed::Etcd::start().await.unwrap();
    check_pages(etcd::service::client(&server.url()), 1_100).await;
    let server = testbed::ZooKeeper::start().await.unwrap();
    check_pages(zookeeper::service::client(&server.url()), 230).await;
}

/// ZooKeeper deletes an empty container later. This one has had no child, so that it stays.
#[tokio::test]
async fn queue_without_an_owner_is_not_listed() {
    let server = testbed::ZooKeeper::start().await.unwrap();
    let backend = zookeeper::service::client(&server.url());
    let locks = Locks::new(backend.clone());
    let names = async || locks.held_names("").try_concat().await.unwrap();
    assert_eq!(names().await, [], "no lock was ever acquired");
    let (holder, queue) = (Holder::random(), "/fenced/queues/b");
    backend.try_acquire(&name("a"), &holder, ttl(600_000), Order::Unordered).await.unwrap();
    server.cli(&["create", queue]).await.unwrap();
    server.cli(&["create", &format!("{queue}/other")]).await.unwrap();
    assert_eq!(names().await, [name("a")]);
    // The control: with an owner, it is listed.
    backend.try_acquire(&name("b"), &holder, ttl(600_000), Order::Unordered).await.unwrap();
    assert_eq!(names().await.len(), 2);
}

#[tokio::test]
async fn long_queue_hides_no_later_lock() {
    let server = testbed::Etcd::start().await.unwrap();
    let locks = etcd::service::client(&server.url());
    let (crowded, later) = (name("a"), name("b"));
    locks.try_acquire(&crowded, &Holder::random(), ttl(600_000), Order::Fair).await.unwrap();
    for _ in 0..5 {
        let places = (0..104).map(|_| format!("fenced/a/queue/{}", Holder::random().as_str()));
        server.put_keys(places).await.unwrap();
    }
    locks.try_acquire(&later, &Holder::random(), ttl(600_000), Order::Fair).await.unwrap();
    let pages: Vec<_> = locks.held_names("").try_collect().await.unwrap();
    assert_eq!(pages, [vec![crowded], vec![later]]);
}

/// Lists the held locks of a service in which another program inserts rows with names that no lock has.
async fn check_foreign_rows(backend: impl Backend + Clone, insert: impl AsyncFn(&str)) {
    let locks = [name("a"), name("m"), name("zz")];
    let holder = Holder::random();
    for lock in &locks {
        backend.try_acquire(lock, &holder, ttl(600_000), Order::Unordered).await.unwrap();
    }
    let list = async || {
        let pages = Locks::new(backend.clone()).held_names("").try_collect::<Vec<_>>();
        let pages = timeout(Duration::from_secs(20), pages).await.expect("the list ends");
        pages.unwrap().into_iter().flatten().collect::<Vec<_>>()
    };
    assert_eq!(list().await, locks);
    insert("z\na").await;
    assert_eq!(list().await, locks);
    insert("a//b").await;
    assert_eq!(list().await, locks);
    // More than fit into a page, before the last of the locks.
    for number in 0..110 {
        insert(&format!("z//{number}")).await;
    }
    assert_eq!(list().await, locks);
}

#[tokio::test]
async fn foreign_rows_hide_no_lock() {
    const COLUMNS: &str = "(name, token, granted, holder, expires_at_ms, since_ms)";
    let values = "33, 33, 'somebody', 99999999999999, 1700000000000";
    let (folder, locks) = crate::sqlite::locked().await;
    // Such rows are inserted without this check.
    let drop_check = "drop trigger fenced_lock_is_valid";
    crate::sqlite::connect(&folder).await.execute(drop_check).await.unwrap();
    let insert = async |lock: &str| {
        let insert = format!("insert into fenced_lock {COLUMNS} values ('{lock}', {values})");
        crate::sqlite::connect(&folder).await.execute(AssertSqlSafe(insert)).await.unwrap();
    };
    check_foreign_rows(locks, insert).await;

    let (server, locks) = crate::mariadb::locked().await;
    let insert = async |lock: &str| {
        let mut connection = MySqlConnection::connect(&server.url()).await.unwrap();
        let insert = format!("insert into fenced_lock {COLUMNS} values ('{lock}', {values})");
        connection.execute(AssertSqlSafe(insert)).await.unwrap();
    };
    let binary = format!("insert into fenced_lock {COLUMNS} values (x'78ff', {values})");
    let mut connection = MySqlConnection::connect(&server.url()).await.unwrap();
    connection.execute(AssertSqlSafe(binary)).await.unwrap();
    check_foreign_rows(locks, insert).await;

    let (server, locks) = crate::postgres::locked().await;
    let insert = async |lock: &str| {
        let mut connection = PgConnection::connect(&server.url()).await.unwrap();
        let insert = "insert into fenced_lock.lock
            (name, token, granted, holder, expires_at, since_ms)
            values ($1, 33, 33, 'somebody', now() + interval '1 hour', 1)";
        sqlx::query(insert).bind(lock).execute(&mut connection).await.unwrap();
    };
    check_foreign_rows(locks, insert).await;
}

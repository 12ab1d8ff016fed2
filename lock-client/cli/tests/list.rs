//! `lock-client list` beside a lock that somebody else has written, and nobody can read.

use sqlx::{Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};
use testbed::{Etcd, Redis, ZooKeeper};

use crate::{
    command::{assert_failed, events, lock_client},
    services::Service,
};

/// The lock `foreign` has been written. It is reported, and all others are listed.
async fn list_goes_on(url: &str) {
    for name in ["a", "z"] {
        let acquired = lock_client(&["acquire", name, "--ttl", "60s", "--locks", url]).await;
        assert!(acquired.status.success(), "{acquired:?}");
    }
    let list = lock_client(&["list", "--locks", url]).await;
    let states = events(&list);
    let names: Vec<_> = states.iter().map(|state| state["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "z"], "{list:?}");
    assert_failed(&list, 69, "lock `foreign`: ");
    // The control: without it, the list is complete.
    let list = lock_client(&["list", "z", "--locks", url]).await;
    assert!(list.status.success() && list.stderr.is_empty(), "{list:?}");
}

#[tokio::test]
async fn list_goes_on_beside_a_foreign_value_in_redis() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{foreign}:lock", "33").await.unwrap();
    list_goes_on(&redis.url()).await;
}

#[tokio::test]
async fn list_goes_on_beside_a_foreign_key_in_etcd() {
    let etcd = Etcd::start().await.unwrap();
    etcd.etcdctl(&["put", "fenced/foreign/queue/two words", "33"]).await.unwrap();
    list_goes_on(&etcd.url()).await;
}

#[tokio::test]
async fn list_goes_on_beside_a_foreign_node_in_zookeeper() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    for node in ["", "/queues", "/offsets", "/queues/foreign", "/queues/foreign/holder-%ff"] {
        zookeeper.cli(&["create", &format!("/fenced{node}")]).await.unwrap();
    }
    list_goes_on(&zookeeper.url()).await;
}

#[tokio::test]
async fn list_goes_on_beside_a_lock_of_another_user_in_zookeeper() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let url = |user: &str| format!("zookeeper://{user}:pw@{}", zookeeper.address(0));
    // Without a user: so the nodes above those of all locks are everybody's.
    let open = ["run", "first", "--locks", &zookeeper.url(), "--", "true"];
    let foreign = ["acquire", "foreign", "--ttl", "60s", "--locks", &url("other")];
    for command in [&open[..], &foreign] {
        let done = lock_client(command).await;
        assert!(done.status.success(), "{done:?}");
    }
    list_goes_on(&url("app")).await;
}

#[tokio::test]
async fn list_goes_on_beside_a_foreign_row_in_postgres() {
    let service = Service::postgres().await;
    let insert = "insert into fenced_lock.lock (name, token, granted, holder, expires_at, since_ms)
        values ('foreign', 33, 33, 'two words', now() + interval '1 h', 1)";
    let mut connection = PgConnection::connect(&service.url).await.unwrap();
    connection.execute(insert).await.unwrap();
    list_goes_on(&service.url).await;
}

const INSERT: &str =
    "insert into fenced_lock (name, token, granted, holder, expires_at_ms, since_ms)
    values ('foreign', 33, 33, 'two words', 99999999999999, 1700000000000)";

#[tokio::test]
async fn list_goes_on_beside_a_foreign_row_in_mariadb() {
    let service = Service::mariadb().await;
    MySqlConnection::connect(&service.url).await.unwrap().execute(INSERT).await.unwrap();
    list_goes_on(&service.url).await;
}

#[tokio::test]
async fn list_goes_on_beside_a_foreign_row_in_sqlite() {
    let service = Service::sqlite().await;
    let mut connection = SqliteConnection::connect(&service.url).await.unwrap();
    connection.execute(INSERT).await.unwrap();
    connection.close().await.unwrap();
    list_goes_on(&service.url).await;
}

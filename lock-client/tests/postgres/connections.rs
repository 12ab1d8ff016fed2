//! How many connections a client has, and which one is kept for held locks.

use std::{sync::Arc, time::Duration};

use lock_client::{Locks, Terms, postgres::Postgres};
use sqlx::{Connection, PgConnection};
use tokio::{sync::Notify, task::JoinSet, time::sleep};

use super::{locked, locked_with, patient};
use crate::{
    lock_service::{ttl, with_causes},
    names::name,
    sql,
};

/// A client whose connections are told by their name.
fn named(server: &testbed::Postgres) -> Locks {
    Locks::new(patient(&format!("{}&application_name=named", server.url())))
}

async fn count(server: &testbed::Postgres) -> anyhow::Result<i64> {
    let mut connection = PgConnection::connect(&server.url()).await?;
    let count = "select count(*) from pg_stat_activity where application_name = 'named'";
    Ok(sqlx::query_scalar(count).fetch_one(&mut connection).await?)
}

async fn cut(server: &testbed::Postgres) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(&server.url()).await?;
    let cut = "select pg_terminate_backend(pid, 5000) from pg_stat_activity
        where application_name = 'named'";
    sqlx::query(cut).fetch_all(&mut connection).await?;
    Ok(())
}

/// Takes all connections that the server has left, and each that it gets back.
async fn take_all(server: &testbed::Postgres) -> anyhow::Result<JoinSet<()>> {
    let full = Arc::new(Notify::new());
    let mut taking = JoinSet::new();
    for _ in 0..3 {
        let (url, full) = (server.url(), full.clone());
        taking.spawn(async move {
            let mut taken = Vec::new();
            loop {
                match PgConnection::connect(&url).await {
                    Ok(connection) => taken.push(connection),
                    Err(_) => full.notify_one(),
                }
                sleep(Duration::from_millis(5)).await;
            }
        });
    }
    full.notified().await;
    Ok(taking)
}

#[tokio::test]
async fn holder_needs_no_free_connection() {
    let (server, _) = locked_with(&["max_connections=10"], str::to_owned).await;
    // Its answers are waited for as long as by default.
    let locks = Locks::new(Postgres::open(&server.url()).unwrap());
    sql::holder_needs_no_free_connection(&locks, async || take_all(&server).await).await.unwrap();
}

#[tokio::test]
async fn holder_outlives_a_pause() {
    let (server, _) = locked_with(&["max_connections=10"], str::to_owned).await;
    let locks = Locks::new(Postgres::open(&server.url()).unwrap());
    let (take_all, pause) = (async || take_all(&server).await, async || server.pause().await);
    sql::holder_outlives_a_pause(&locks, take_all, pause, || server.resume()).await.unwrap();
}

#[tokio::test]
async fn waiter_has_two_connections() {
    let (server, client) = locked().await;
    let count = async || count(&server).await;
    let waiting = named(&server);
    let connections = sql::connections_of_a_waiter(&Locks::new(client), &waiting, count).await;
    assert_eq!(connections.unwrap(), 2, "one for tries, and one that listens");
}

#[tokio::test]
async fn cut_connection_is_made_again_at_once() {
    let (server, _) = locked().await;
    let (cut, count) = (async || cut(&server).await, async || count(&server).await);
    sql::cut_connection_is_made_again(&named(&server), cut, count).await.unwrap();
}

#[tokio::test]
async fn release_over_a_cut_connection_says_what_was_true() {
    let (server, _) = locked().await;
    let cut = async || cut(&server).await;
    sql::release_over_a_cut_connection_says_what_was_true(&named(&server), cut).await.unwrap();
}

/// A standby answers in the same way. The first answer says so, and tries continue, because a failover
/// looks the same.
#[tokio::test]
async fn server_that_takes_no_writes_is_named_and_tried_again() {
    let (server, client) = locked().await;
    server.reload_with("default_transaction_read_only = on").unwrap();
    let read_only = async || {
        let mut connection = PgConnection::connect(&server.url()).await?;
        let setting = "show default_transaction_read_only";
        let setting: String = sqlx::query_scalar(setting).fetch_one(&mut connection).await?;
        Ok(setting == "on")
    };
    testbed::wait::until_async(Duration::from_secs(30), read_only).await.unwrap();
    sql::server_without_writes_answers_nothing(&client).await.unwrap();
    let locks = Locks::new(client);
    let wait = |seconds| Terms::new(ttl(60_000)).wait(Duration::from_secs(seconds));
    let error = locks.acquire(&name("r"), wait(1)).await.unwrap_err();
    let text = with_causes(&error);
    assert!(
        text.contains("takes no writes") && text.contains("25006") || text.contains("read-only")
    );
    assert!(text.contains("it is a standby, or its sessions are read-only"), "{text}");
    let waiting = tokio::spawn(async move { locks.acquire(&name("r"), wait(60)).await });
    server.reload_with("default_transaction_read_only = off").unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[test]
fn setting_that_is_not_known_is_rejected() {
    for setting in ["sslmod=verify-full", "tls-ca=/ca.pem", "target=any", "SSLMODE=require"] {
        let error = Postgres::open(&format!("postgres://db/locks?{setting}")).unwrap_err();
        let text = error.to_string();
        let name = setting.split('=').next().unwrap();
        assert!(text.contains(&format!("`{name}` is no setting here")), "{text}");
        assert!(text.contains("the settings are sslmode, sslrootcert"), "{text}");
    }
    let documented = "connect_timeout=3&application_name=app&sslmode=require&keepalives_idle=9";
    Postgres::open(&format!("postgres://db/locks?{documented}")).unwrap();
    // What is no setting, but a password.
    for password in ["se?cret", "se,cret/x", "se,cret?x", "se:cret#x"] {
        for hosts in ["db", "a,b"] {
            let url = format!("postgres://me:{password}@{hosts}/locks");
            let text = Postgres::open(&url).unwrap_err().to_string();
            assert!(text.contains("write %2F") && !text.contains("cret"), "{url}: {text}");
        }
    }
}

//! PostgreSQL shows a commit whose wait for a synchronous standby was cut off. A failover would lose it.

use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, PgConnection};
use testbed::{Postgres, StorageServer, wait::until_async};
use tokio::{join, time::sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    programs::storage_server,
    required_standbys::{set_names, waiting},
    transactions::{transact, write},
    wire::{self, Answer},
};

const PATIENCE: Duration = Duration::from_secs(30);

async fn put(url: &str, path: &str, token: &str, value: &str) -> Answer {
    wire::request(url, "PUT", path, &[("Fencing-Token", token)], value).await
}

async fn get(url: &str, path: &str) -> Answer {
    wire::request(url, "GET", path, &[], "").await
}

/// Starts to wait for a standby that does not exist, or no longer.
async fn set_standby(postgres: &Postgres, change: &'static str) {
    let mut admin = PgConnection::connect(&postgres.url()).await.unwrap();
    sqlx::query(change).execute(&mut admin).await.unwrap();
    sqlx::query("select pg_reload_conf()").execute(&mut admin).await.unwrap();
}

/// Ends sessions that wait for a standby, soon after they begin to, until the result is dropped.
async fn end_waits(postgres: &Postgres) -> AbortOnDropHandle<()> {
    let waits =
        "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'";
    let mut admin = PgConnection::connect(&postgres.url()).await.unwrap();
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            sqlx::query(waits).execute(&mut admin).await.unwrap();
            sleep(Duration::from_millis(20)).await;
        }
    }))
}

#[tokio::test]
async fn nothing_is_decided_on_what_no_standby_has() {
    let postgres = Postgres::start().await.unwrap();
    let server = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let url = server.url();
    assert_eq!(put(url, "/v1/resources/r", "1", "one").await.status, 201);
    set_standby(&postgres, "alter system set synchronous_standby_names = 'missing'").await;
    let _ending = end_waits(&postgres).await;

    // Another server's claim waits. The first ones may come before PostgreSQL has noticed the setting.
    let mut other = PgConnection::connect(&postgres.url()).await.unwrap();
    let claim = "update storage.resource set token = 35, version = version + 1";
    while sqlx::query(claim).execute(&mut other).await.is_ok() {}
    assert_eq!(get(url, "/v1/fences/r").await.json()["token"], 35, "PostgreSQL shows the claim");

    let transaction = json!({"writes": [write("r", 1, "stale")]});
    let guard = [("Fencing-Token", "35")];
    let (again, stale, read, transacted) = join!(
        put(url, "/v1/fences/r", "35", ""),
        put(url, "/v1/resources/r", "1", "stale"),
        wire::request(url, "GET", "/v1/resources/r", &guard, ""),
        transact(&server, &transaction),
    );
    for answer in [again, stale, read, transacted] {
        assert_eq!((answer.status, &answer.json()["outcome"]), (503, &"none".into()), "{answer:?}");
    }
    // The controls: a read without a token decides nothing, and standbys are needed no longer.
    assert_eq!(get(url, "/v1/resources/r").await.text(), "one");
    set_standby(&postgres, "alter system reset synchronous_standby_names").await;
    let is_confirmed = async || Ok(put(url, "/v1/fences/r", "35", "").await.status == 200);
    until_async(PATIENCE, is_confirmed).await.unwrap();
    assert_eq!(put(url, "/v1/resources/r", "1", "stale").await.problem(), "412 stale-token");
    assert_eq!(transact(&server, &transaction).await.problem(), "409 transaction-rejected");
}

/// A restart ends the waits of commits, too: PostgreSQL shows them although no standby has them.
#[tokio::test]
async fn nothing_is_decided_on_what_a_restart_shows_and_no_standby_has() {
    let mut postgres = Postgres::start().await.unwrap();
    let server = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let url = server.url();
    let numbered = [("Fencing-Token", "35"), ("Fencing-Sequence", "1")];
    let write = async || wire::request(url, "PUT", "/v1/resources/r", &numbered, "one").await;
    let claim = async || put(url, "/v1/fences/r", "35", "").await;
    // The server knows the row by then, and sends the next change without a load.
    assert_eq!(put(url, "/v1/resources/r", "34", "zero").await.status, 201);
    assert_eq!(put(url, "/v1/resources/r", "34", "zero").await.status, 200);
    set_names(&postgres, "missing").await;
    let (unknown, ()) = join!(write(), async {
        let waits = async || Ok(waiting(&postgres, 0.0).await == 1);
        until_async(PATIENCE, waits).await.unwrap();
        postgres.crash().await.unwrap();
    });
    assert_eq!(unknown.json()["outcome"], "unknown", "{unknown:?}");
    postgres.start_again().await.unwrap();
    // PostgreSQL shows the write.
    let is_shown = async || Ok(get(url, "/v1/resources/r").await.text() == "one");
    until_async(PATIENCE, is_shown).await.unwrap();
    let _ending = end_waits(&postgres).await;

    let (again, claimed, stale, read) = join!(
        write(),
        claim(),
        put(url, "/v1/resources/r", "34", "stale"),
        wire::request(url, "GET", "/v1/resources/r", &numbered[..1], ""),
    );
    for answer in [again, claimed, stale, read] {
        assert_eq!((answer.status, &answer.json()["outcome"]), (503, &"none".into()), "{answer:?}");
    }
    // The control: standbys are needed no longer.
    set_names(&postgres, "").await;
    until_async(PATIENCE, async || Ok(claim().await.status == 200)).await.unwrap();
    assert_eq!(write().await.json()["version"], 3, "the first answer");
    assert_eq!(put(url, "/v1/resources/r", "34", "stale").await.problem(), "412 stale-token");
}

//! Reads that a replica may answer, with a version that they must have at least.

use std::{fs::rename, os::unix::fs::symlink, time::Duration};

use testbed::{Postgres, PostgresReplica, StorageServer, wait::until_async};
use tokio::time::sleep;

use crate::{
    database::{Database, get, offer, on_empty_databases},
    logs::is_logged,
    programs::storage_server,
    readiness::until_ready,
    wire::{self, Answer},
};

const PATIENCE: Duration = Duration::from_secs(60);
const VALUE: &str = "/v1/resources/r";

on_empty_databases! {
    primary_answers_without_a_replica,
}

/// A primary, a replica of it that has version 1 of a resource, and a server that reads there.
struct Cluster {
    primary: Postgres,
    replica: PostgresReplica,
    server: StorageServer,
}

impl Cluster {
    async fn start() -> Self {
        let primary = Postgres::start().await.unwrap();
        let replica = primary.start_replica().await.unwrap();
        let server = serve(&primary.url(), &replica.url()).await;
        assert_eq!(offer(&server, "PUT", VALUE, 33, "one").await.status, 201);
        replica.catch_up(&primary).await.unwrap();
        Self { primary, replica, server }
    }
}

async fn serve(url: &str, read_url: &str) -> StorageServer {
    let arguments = ["--read-url", read_url];
    StorageServer::start_on(&storage_server(), url, &arguments).await.unwrap()
}

async fn ask_at_least(server: &StorageServer, method: &str, version: &str) -> Answer {
    let headers = [("If-Version-At-Least", version)];
    wire::request(server.url(), method, VALUE, &headers, "").await
}

#[tokio::test]
async fn replica_answers_although_its_primary_is_down() {
    let mut cluster = Cluster::start().await;
    assert_eq!(ask_at_least(&cluster.server, "GET", "1").await.text(), "one");
    cluster.primary.crash().await.unwrap();
    let read = ask_at_least(&cluster.server, "GET", "1").await;
    assert_eq!((read.status, read.text()), (200, "one".into()));
    assert_eq!(ask_at_least(&cluster.server, "HEAD", "1").await.status, 200);
    // The controls: all other reads need the primary.
    assert_eq!(get(&cluster.server, VALUE).await.problem(), "503 unavailable");
    assert_eq!(offer(&cluster.server, "GET", VALUE, 34, "").await.problem(), "503 unavailable");
    assert_eq!(get(&cluster.server, "/v1/resources").await.problem(), "503 unavailable");
}

#[tokio::test]
async fn nobody_reads_behind_their_own_write() {
    let cluster = Cluster::start().await;
    let server = &cluster.server;
    cluster.replica.cut();
    let written = offer(server, "PUT", VALUE, 33, "two").await;
    assert_eq!(written.json()["version"], 2);
    let behind = ask_at_least(server, "GET", "2").await;
    assert_eq!(behind.problem(), "503 version-not-reached");
    assert_eq!(behind.header("retry-after"), Some("1"));
    let json = behind.json();
    assert_eq!((&json["version"], &json["outcome"]), (&1.into(), &"none".into()), "{json}");
    assert_eq!(ask_at_least(server, "HEAD", "2").await.status, 503);
    // The controls: the replica has the older value, and the primary the newer one.
    assert_eq!(ask_at_least(server, "GET", "1").await.text(), "one");
    assert_eq!(get(server, VALUE).await.text(), "two");
    let fenced = [("Fencing-Token", "34"), ("If-Version-At-Least", "2")];
    let fenced = wire::request(server.url(), "GET", VALUE, &fenced, "").await;
    assert_eq!(fenced.text(), "two", "a fenced read");
    cluster.replica.mend();
    let is_read = async || Ok(ask_at_least(server, "GET", "2").await.status == 200);
    until_async(PATIENCE, is_read).await.unwrap();
    assert_eq!(ask_at_least(server, "GET", "2").await.text(), "two");
}

async fn primary_answers_without_a_replica(database: Database) {
    let server = database.serve(&[]).await;
    assert_eq!(ask_at_least(&server, "GET", "0").await.problem(), "404 not-found");
    assert_eq!(ask_at_least(&server, "GET", "1").await.problem(), "503 version-not-reached");
    assert_eq!(offer(&server, "PUT", VALUE, 33, "one").await.status, 201);
    assert_eq!(ask_at_least(&server, "GET", "1").await.text(), "one");
    assert_eq!(ask_at_least(&server, "GET", "2").await.problem(), "503 version-not-reached");
    // A delete is a version, too.
    assert_eq!(offer(&server, "DELETE", VALUE, 33, "").await.status, 204);
    assert_eq!(ask_at_least(&server, "GET", "2").await.problem(), "404 not-found");
    for malformed in ["", "-1", "+1", "\"1\"", "1, 2", "x", "99999999999999999999"] {
        let rejected = ask_at_least(&server, "GET", malformed).await;
        assert_eq!(rejected.problem(), "400 malformed-request", "{malformed:?}");
    }
    let twice = [("If-Version-At-Least", "1"), ("If-Version-At-Least", "1")];
    let rejected = wire::request(server.url(), "GET", VALUE, &twice, "").await;
    assert_eq!(rejected.problem(), "400 malformed-request");
}

/// A version of a primary from before a failover has another value.
#[tokio::test]
async fn old_primary_is_no_replica() {
    let Cluster { primary, replica, .. } = Cluster::start().await;
    replica.cut();
    replica.promote().await.unwrap();
    let server = serve(&replica.url(), &primary.url()).await;
    assert_eq!(ask_at_least(&server, "GET", "1").await.problem(), "503 unavailable");
    is_logged(&server, "an old primary").await;
    // The control: the new primary.
    let server = serve(&replica.url(), &replica.url()).await;
    assert_eq!(ask_at_least(&server, "GET", "1").await.text(), "one");
}

/// Connections to the old primary are kept, and would write there.
#[tokio::test]
async fn primary_that_the_replica_shows_to_be_old_is_used_no_more() {
    let Cluster { primary: _primary, replica, server } = Cluster::start().await;
    // The control: it takes writes.
    assert_eq!(offer(&server, "PUT", VALUE, 34, "two").await.status, 200);
    replica.cut();
    replica.promote().await.unwrap();
    assert_eq!(ask_at_least(&server, "GET", "1").await.status, 200);
    assert_eq!(offer(&server, "PUT", VALUE, 35, "three").await.problem(), "503 unavailable");
}

/// The socket of the replica is behind a link, so that another server can take its place.
#[tokio::test]
async fn promoted_replica_is_reported_at_once_until_it_is_a_standby_again() {
    let primary = Postgres::start().await.unwrap();
    let (replica, rebuilt) =
        (primary.start_replica().await.unwrap(), primary.start_replica().await.unwrap());
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("replica");
    let lead_to = |replica: &PostgresReplica| {
        let new = folder.path().join("new");
        symlink(replica.server().socket_folder(), &new).unwrap();
        rename(new, &link).unwrap();
    };
    lead_to(&replica);
    let url =
        format!("postgres://postgres@localhost/postgres?sslmode=disable&host={}", link.display());
    let server = serve(&primary.url(), &url).await;
    assert_eq!(offer(&server, "PUT", VALUE, 33, "one").await.status, 201);
    until_ready(server.url(), 200).await;

    replica.cut();
    replica.promote().await.unwrap();
    // Nobody has read there.
    is_logged(&server, "was promoted to timeline 2").await;
    until_ready(server.url(), 503).await;
    let rejected = offer(&server, "PUT", VALUE, 34, "two").await;
    assert_eq!(rejected.json()["outcome"], "none", "{rejected:?}");
    let detail = rejected.json()["detail"].to_string();
    assert!(detail.contains("make it a standby again"), "{detail}");
    // One that does not answer may come back.
    drop(replica);
    sleep(Duration::from_secs(3)).await;
    let rejected = offer(&server, "PUT", VALUE, 34, "two").await;
    assert_eq!(rejected.problem(), "503 unavailable");

    lead_to(&rebuilt);
    let is_written = async || Ok(offer(&server, "PUT", VALUE, 34, "two").await.status == 200);
    until_async(PATIENCE, is_written).await.unwrap();
    until_ready(server.url(), 200).await;
    let is_read = async || Ok(ask_at_least(&server, "GET", "2").await.status == 200);
    until_async(PATIENCE, is_read).await.unwrap();
}

/// A connection to it is kept, and would read there.
#[tokio::test]
async fn primary_that_was_replaced_is_no_replica_any_more() {
    let Cluster { primary, replica, .. } = Cluster::start().await;
    let both = Postgres::url_of_all(&[&primary, replica.server()]);
    let server = serve(&both, &primary.url()).await;
    replica.cut();
    assert_eq!(offer(&server, "PUT", VALUE, 33, "lost").await.json()["version"], 2);
    // The control: it is the primary still.
    assert_eq!(ask_at_least(&server, "GET", "2").await.text(), "lost");
    replica.promote().await.unwrap();
    until_async(PATIENCE, async || {
        // On the new primary, the second version comes once more.
        Ok(offer(&server, "PUT", VALUE, 34, "kept").await.json()["version"] == 2)
    })
    .await
    .unwrap();
    assert_eq!(ask_at_least(&server, "GET", "2").await.problem(), "503 unavailable");
}

#[tokio::test]
async fn sqlite_has_no_replicas() {
    let database = Database::sqlite();
    let error = database.run(&["--read-url", "postgres://localhost/x"]).await.failed();
    assert!(error.contains("the database has no standbys"), "{error}");
    let postgres = Database::postgres().await;
    let two = "postgres://a,b/x";
    let error = postgres.run(&["--check", "--read-url", two]).await.failed();
    assert!(error.contains("takes one host"), "{error}");
    // A password is not printed.
    let printed =
        postgres.run(&["--read-url", "postgres://u:s3cret@a/x", "config"]).await.printed();
    assert!(printed.contains("read-url = \"postgres://u:***@a/x\""), "{printed}");
}

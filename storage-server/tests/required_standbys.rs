//! A server that answers only once synchronous standbys have the write.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection, query_scalar};
use testbed::{Postgres, PostgresReplica, StorageServer, wait::until_async};
use tokio::join;

use crate::{
    database::{Database, get, offer},
    programs::storage_server,
    readiness::until_ready,
    wire::Answer,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// A value that is loaded over a connection of its own.
const LARGE_BYTES: usize = 100_000;
/// Ends the waits of commits. They are made, and PostgreSQL warns.
const CANCEL: &str = "select pg_cancel_backend(pid) from pg_stat_activity
    where wait_event = 'SyncRep' and application_name = 'storage-server'";

/// A primary with a replica, a server that requires it, and another one that does not.
struct Cluster {
    primary: Postgres,
    replica: PostgresReplica,
    requiring: StorageServer,
    other: StorageServer,
}

impl Cluster {
    /// The replica is synchronous, if the setting says so.
    async fn start(synchronous_standby_names: &str) -> Self {
        let primary = Postgres::start().await.unwrap();
        let replica = primary.start_replica().await.unwrap();
        set_names(&primary, synchronous_standby_names).await;
        let url = primary.url();
        let requiring = ["--require-sync-standby", "1"];
        let requiring = StorageServer::start_on(&storage_server(), &url, &requiring).await.unwrap();
        let other = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
        Self { primary, replica, requiring, other }
    }

    async fn synchronous() -> Self {
        let cluster = Self::start("*").await;
        until_ready(cluster.requiring.url(), 200).await;
        know(&cluster.requiring, "r").await;
        know(&cluster.other, "other").await;
        cluster
    }

    /// Lets both servers commit, and ends the waits of their commits for the replica, which is cut off.
    async fn end_waits_of_commits(&self, end: impl AsyncFnOnce()) {
        let (unknown, accepted, ()) = join!(
            put(&self.requiring, 34),
            offer(&self.other, "PUT", "/v1/resources/other", 34, "x"),
            async {
                let both_wait = async || Ok(waiting(&self.primary, 0.0).await == 2);
                until_async(PATIENCE, both_wait).await.unwrap();
                end().await;
            }
        );
        assert_rejected(&unknown, "unknown");
        // The control: PostgreSQL reports both commits as made.
        assert_eq!(accepted.status, 200, "{accepted:?}");
    }
}

/// How many sessions of servers wait for a standby, of those that have waited for this long.
pub(crate) async fn waiting(primary: &Postgres, seconds: f64) -> i64 {
    let mut admin = PgConnection::connect(&primary.url()).await.unwrap();
    let waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'
        and application_name = 'storage-server' and query not like '%''probe''%'
        and state_change < now() - make_interval(secs => $1)";
    query_scalar(waiting).bind(seconds).fetch_one(&mut admin).await.unwrap()
}

async fn execute(postgres: &Postgres, sql: &str) {
    let mut admin = PgConnection::connect(&postgres.url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut admin).await.unwrap();
}

/// Changes which standbys are synchronous, and waits until PostgreSQL has told all sessions. `alter system`
/// itself commits nothing.
pub(crate) async fn set_names(postgres: &Postgres, names: &str) {
    execute(postgres, &format!("alter system set synchronous_standby_names = '{names}'")).await;
    execute(postgres, "select pg_reload_conf()").await;
    let is_set = async || {
        let mut admin = PgConnection::connect(&postgres.url()).await?;
        let current = "select current_setting('synchronous_standby_names') = $1";
        Ok(query_scalar(current).bind(names).fetch_one(&mut admin).await?)
    };
    until_async(PATIENCE, is_set).await.unwrap();
}

async fn put(server: &StorageServer, token: u64) -> Answer {
    offer(server, "PUT", "/v1/resources/r", token, &token.to_string()).await
}

async fn claim(server: &StorageServer, token: u64) -> Answer {
    offer(server, "PUT", "/v1/fences/r", token, "").await
}

async fn read_fenced(server: &StorageServer, token: u64) -> Answer {
    offer(server, "GET", "/v1/resources/r", token, "").await
}

/// Lets a server know a row over its present connection, so that it sends the next change without a load.
async fn know(server: &StorageServer, resource: &str) {
    let path = format!("/v1/resources/{resource}");
    assert_eq!(offer(server, "PUT", &path, 33, "33").await.status, 201);
    assert_eq!(offer(server, "PUT", &path, 33, "33").await.status, 200);
}

fn assert_rejected(answer: &Answer, outcome: &str) {
    assert_eq!(answer.problem(), "503 unavailable", "{answer:?}");
    assert_eq!(answer.json()["outcome"], outcome, "{answer:?}");
}

#[tokio::test]
async fn nothing_is_written_without_the_required_standby() {
    let mut cluster = Cluster::start("").await;
    // The replica streams, and is asynchronous.
    for _ in 0..3 {
        let rejected = put(&cluster.requiring, 33).await;
        assert_rejected(&rejected, "none");
        assert!(rejected.text().contains("--require-sync-standby is 1"), "{}", rejected.text());
    }
    assert_eq!(get(&cluster.requiring, "/v1/fences/r").await.status, 404);
    let not_ready = get(&cluster.requiring, "/readyz").await;
    assert!(not_ready.text().contains("--require-sync-standby is 1"), "{}", not_ready.text());
    // The control: the primary takes writes.
    until_ready(cluster.other.url(), 200).await;
    assert_eq!(put(&cluster.other, 33).await.status, 201);

    set_names(&cluster.primary, "*").await;
    let is_written = async || Ok(put(&cluster.requiring, 34).await.status == 200);
    until_async(PATIENCE, is_written).await.unwrap();
    until_ready(cluster.requiring.url(), 200).await;

    cluster.replica.crash().await.unwrap();
    until_ready(cluster.requiring.url(), 503).await;
    // The replica has been seen less than half a second ago, or not.
    let is_rejected = async || Ok(put(&cluster.requiring, 35).await.json()["outcome"] == "none");
    until_async(PATIENCE, is_rejected).await.unwrap();
    cluster.replica.start_again().await.unwrap();
    let is_written = async || Ok(put(&cluster.requiring, 36).await.status == 200);
    until_async(PATIENCE, is_written).await.unwrap();
    until_ready(cluster.requiring.url(), 200).await;
}

/// One of two is not enough: PostgreSQL itself waits for one only.
#[tokio::test]
async fn each_required_standby_must_have_the_write() {
    let primary = Postgres::start().await.unwrap();
    let replicas = [primary.start_replica().await.unwrap(), primary.start_replica().await.unwrap()];
    set_names(&primary, "any 1 (*)").await;
    let serve = async |arguments: &[&str]| {
        StorageServer::start_on(&storage_server(), &primary.url(), arguments).await.unwrap()
    };
    let two = serve(&["--require-sync-standby", "2"]).await;
    let one = serve(&["--require-sync-standby", "1"]).await;
    until_ready(two.url(), 200).await;
    know(&two, "r").await;
    // Both are connected still, and one has no more of it.
    replicas[0].cut();
    let unconfirmed = put(&two, 34).await;
    assert_rejected(&unconfirmed, "unknown");
    // The controls: one standby has it, and both take part again.
    assert_eq!(put(&one, 35).await.status, 200);
    replicas[0].mend();
    let is_written = async || Ok(put(&two, 36).await.status == 200);
    until_async(PATIENCE, is_written).await.unwrap();
}

/// Patroni without `synchronous_mode_strict` gives up a standby while commits wait for it.
#[tokio::test]
async fn commit_whose_standby_was_given_up_is_unknown() {
    let cluster = Cluster::synchronous().await;
    let large = "x".repeat(LARGE_BYTES);
    let path = "/v1/resources/terraform/large";
    assert_eq!(offer(&cluster.other, "PUT", path, 33, &large).await.status, 201);
    cluster.replica.cut();
    cluster.end_waits_of_commits(async || set_names(&cluster.primary, "").await).await;
    assert_eq!(get(&cluster.requiring, "/v1/fences/r").await.json()["token"], 34);
    // No answer is decided on the new fence, as the standby may be promoted without it.
    for answer in [
        claim(&cluster.requiring, 34).await,
        read_fenced(&cluster.requiring, 34).await,
        put(&cluster.requiring, 33).await,
        // Neither is any read before a change, or behind a claim.
        get(&cluster.requiring, "/v1/terraform/large").await,
        offer(&cluster.requiring, "GET", path, 33, "").await,
    ] {
        assert_rejected(&answer, "none");
    }
    // The controls: they would be decided otherwise.
    assert_eq!(claim(&cluster.other, 34).await.status, 200);
    assert_eq!(read_fenced(&cluster.other, 34).await.text(), "34");
    assert_eq!(put(&cluster.other, 33).await.problem(), "412 stale-token");
    assert_eq!(get(&cluster.other, "/v1/terraform/large").await.text(), large);
    assert_eq!(offer(&cluster.other, "GET", path, 33, "").await.text(), large);
}

/// The wait for the standby is cancelled, with a warning that few clients of PostgreSQL look at.
#[tokio::test]
async fn cancelled_wait_is_no_confirmation() {
    let cluster = Cluster::synchronous().await;
    cluster.replica.cut();
    cluster.end_waits_of_commits(async || execute(&cluster.primary, CANCEL).await).await;
    // Once the standby has them, they are confirmed.
    cluster.replica.mend();
    let is_confirmed = async || Ok(claim(&cluster.requiring, 34).await.status == 200);
    until_async(PATIENCE, is_confirmed).await.unwrap();
}

/// A server's sessions have time-outs. If one of them could end the wait of a commit, then each write would
/// be accepted without its standby after a while.
#[tokio::test]
async fn timeouts_of_postgres_end_no_commit() {
    let postgres = Postgres::start_with(&["synchronous_standby_names=missing"]).await.unwrap();
    execute(&postgres, "set synchronous_commit = local; create table written (token int)").await;
    let commit = async |statements: &str| {
        let timeouts = "set application_name = 'storage-server'; set statement_timeout = '1s';
            set lock_timeout = '1s'; set idle_in_transaction_session_timeout = '1s'";
        let mut session = PgConnection::connect(&postgres.url()).await.unwrap();
        sqlx::raw_sql(timeouts).execute(&mut session).await.unwrap();
        // The control: it ends a statement.
        let slow = sqlx::raw_sql("select pg_sleep(60)").execute(&mut session).await;
        assert!(slow.unwrap_err().to_string().contains("statement timeout"));
        let statements = AssertSqlSafe(statements.to_owned());
        sqlx::raw_sql(statements).execute(&mut session).await.unwrap();
    };
    join!(
        commit("insert into written values (34)"),
        commit("begin; insert into written values (35); commit"),
        async {
            let both_wait = async || Ok(waiting(&postgres, 3.0).await == 2);
            until_async(PATIENCE, both_wait).await.unwrap();
            execute(&postgres, CANCEL).await;
        }
    );
}

/// All that is seen of a standby then is that it is connected.
#[tokio::test]
async fn role_that_sees_no_standbys_is_rejected() {
    let database = Database::postgres().await;
    database.run(&["migrate"]).await.printed();
    database
        .execute(
            "create role server login;
            grant usage on schema storage to server;
            grant select on storage.migrations, storage.common_fence to server;
            grant select, insert, update on storage.resource to server",
        )
        .await
        .unwrap();
    let url = database.url.replacen("postgres://postgres@", "postgres://server@", 1);
    assert_ne!(url, database.url);
    let server = Database { url, folder: tempfile::tempdir().unwrap(), postgres: None };
    let check = ["--check", "--no-migrate", "--require-sync-standby", "1"];
    let error = server.run(&check).await.failed();
    assert!(error.contains("grant pg_read_all_stats to server"), "{error}");
    // The controls: without standbys, it needs no such right, and pg_monitor has it.
    server.run(&check[..2]).await.printed();
    database.execute("grant pg_monitor to server").await.unwrap();
    let error = server.run(&check).await.failed();
    assert!(error.contains("synchronous standbys that stream is 0"), "{error}");
}

#[tokio::test]
async fn sqlite_has_no_standbys() {
    let database = Database::sqlite();
    let error = database.run(&["--require-sync-standby", "1"]).await.failed();
    assert!(error.contains("the database has no standbys"), "{error}");
    assert!(!database.file("fenced.db").exists());
}

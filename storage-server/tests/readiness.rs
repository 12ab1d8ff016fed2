//! A server is ready only if its database takes writes.

use std::{process::Command, time::Duration};

use rustix::process::Signal;
use serde_json::json;
use sqlx::{Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use testbed::{Postgres, StorageServer, process::Process, wait::until_async};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::programs::{STORAGE_SERVER, storage_server};
use crate::wire::{self, Answer};

const PATIENCE: Duration = Duration::from_secs(30);

async fn ready(url: &str) -> Answer {
    wire::request(url, "GET", "/readyz", &[], "").await
}

pub(crate) async fn until_ready(url: &str, status: u16) {
    until_async(PATIENCE, async || Ok(ready(url).await.status == status)).await.unwrap();
}

async fn put(url: &str, token: &str, value: &str) -> Answer {
    wire::request(url, "PUT", "/v1/resources/r", &[("Fencing-Token", token)], value).await
}

/// Changes a setting of a running PostgreSQL.
async fn set(connection: &mut PgConnection, change: &'static str) {
    sqlx::query(change).execute(&mut *connection).await.unwrap();
    sqlx::query("select pg_reload_conf()").execute(connection).await.unwrap();
}

async fn server_and_admin(postgres: &Postgres) -> (StorageServer, PgConnection) {
    let server = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    assert_eq!(put(server.url(), "1", "one").await.status, 201);
    until_ready(server.url(), 200).await;
    (server, PgConnection::connect(&postgres.url()).await.unwrap())
}

#[tokio::test]
async fn server_of_a_read_only_database_is_not_ready() {
    let postgres = Postgres::start().await.unwrap();
    let (server, mut admin) = server_and_admin(&postgres).await;
    set(&mut admin, "alter system set default_transaction_read_only = on").await;
    until_ready(server.url(), 503).await;
    assert_eq!(put(server.url(), "2", "two").await.json()["outcome"], "none");
    set(&mut admin, "alter system reset default_transaction_read_only").await;
    until_async(PATIENCE, async || Ok(put(server.url(), "3", "three").await.status == 200))
        .await
        .unwrap();
    until_ready(server.url(), 200).await;
}

/// A primary that becomes a standby answers as this one does.
#[tokio::test]
async fn sessions_that_take_no_writes_are_replaced() {
    let postgres = Postgres::start().await.unwrap();
    let (server, mut admin) = server_and_admin(&postgres).await;
    let sessions = async || -> anyhow::Result<Vec<i32>> {
        let mut connection = PgConnection::connect(&postgres.url()).await?;
        let sessions = "select pid from pg_stat_activity where application_name = 'storage-server'";
        Ok(sqlx::query_scalar(sessions).fetch_all(&mut connection).await?)
    };
    let before = sessions().await.unwrap();
    assert!(!before.is_empty());
    set(&mut admin, "alter system set default_transaction_read_only = on").await;
    until_ready(server.url(), 503).await;
    assert_eq!(put(server.url(), "2", "two").await.status, 503);
    let are_replaced = async || {
        put(server.url(), "2", "two").await;
        Ok(!sessions().await?.iter().any(|session| before.contains(session)))
    };
    until_async(PATIENCE, are_replaced).await.unwrap();
}

/// Another process writes to the file for longer than the server waits.
#[tokio::test]
async fn server_whose_file_is_locked_is_not_ready() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let url = format!("sqlite:{}", folder.path().join("fenced.db").display());
    let server = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    let mut rival = SqliteConnection::connect(&url).await.unwrap();
    sqlx::query("begin immediate").execute(&mut rival).await.unwrap();
    assert_eq!(ready(server.url()).await.status, 503);
    rival.close().await.unwrap();
    until_ready(server.url(), 200).await;
}

/// Sessions that wait for a standby are ended, or PostgreSQL would run out of connections.
#[tokio::test]
async fn missing_standby_does_not_use_up_the_connections() {
    let postgres = Postgres::start().await.unwrap();
    let (server, mut admin) = server_and_admin(&postgres).await;
    set(&mut admin, "alter system set synchronous_standby_names = 'missing'").await;
    let waiting = async || -> anyhow::Result<Vec<i32>> {
        let mut connection = PgConnection::connect(&postgres.url()).await?;
        let waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep'";
        Ok(sqlx::query_scalar(waiting).fetch_all(&mut connection).await?)
    };
    // The first writes may come before PostgreSQL has noticed the setting.
    let write = async {
        loop {
            let written = put(server.url(), "2", "two").await;
            if written.status != 200 {
                break written;
            }
        }
    };
    let (written, first) = tokio::join!(write, async {
        until_async(PATIENCE, async || Ok(!waiting().await?.is_empty())).await.unwrap();
        waiting().await.unwrap()
    });
    // It has waited at its commit, or before it, at the load of its row.
    assert_eq!(written.status, 503);
    let is_ended = async || Ok(!waiting().await?.iter().any(|session| first.contains(session)));
    until_async(PATIENCE, is_ended).await.unwrap();
}

/// Its commits wait for a standby that does not exist.
#[tokio::test]
async fn server_whose_synchronous_standby_is_missing_is_not_ready() {
    let postgres = Postgres::start().await.unwrap();
    let (server, mut admin) = server_and_admin(&postgres).await;
    set(&mut admin, "alter system set synchronous_standby_names = 'missing'").await;
    until_ready(server.url(), 503).await;
    // `alter system` itself commits nothing.
    set(&mut admin, "alter system reset synchronous_standby_names").await;
    until_ready(server.url(), 200).await;
}

/// Starts a server of which no file may grow beyond 500 KiB.
async fn server_with_a_small_disk(folder: &TempDir) -> (Process, String) {
    let mut command = Command::new("sh");
    // A write beyond the limit, in blocks of 512 bytes, then fails instead of killing the process.
    command.args(["-c", "trap '' XFSZ; ulimit -S -f 1000; exec \"$0\" \"$@\"", STORAGE_SERVER]);
    command.args(["--listen", "127.0.0.1:0", "--database-url", "sqlite:fenced.db"]);
    command.current_dir(folder.path());
    let mut process = Process::spawn("storage-server", &command, folder.path()).unwrap();
    let line = process.line(PATIENCE).await.unwrap();
    let url = line.strip_prefix("listening on ").unwrap().to_owned();
    assert_eq!(ready(&url).await.status, 200);
    (process, url)
}

/// More than the small disk has space for.
fn large() -> String {
    "x".repeat(600_000)
}

async fn transact(url: &str, token: u64, text: &str) -> Answer {
    let write = json!({"resource": "r", "token": token, "value": {"text": text}});
    let body = json!({"writes": [write]}).to_string();
    let headers = [("Content-Type", "application/json")];
    wire::request(url, "POST", "/v1/transactions", &headers, body).await
}

#[tokio::test]
async fn server_with_a_full_disk_is_not_ready() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let (_process, url) = server_with_a_small_disk(&folder).await;
    assert_eq!(put(&url, "1", &large()).await.status, 503);
    let not_ready = ready(&url).await;
    assert_eq!(not_ready.problem(), "503 unavailable");
    assert!(not_ready.json()["oldest_operation_ms"].is_number());
    // The next write that succeeds shows that the disk has space again.
    assert_eq!(put(&url, "1", "x").await.status, 201);
    assert_eq!(ready(&url).await.status, 200);
}

/// A rejected transaction commits nothing, so it does not show that the disk has space again.
#[tokio::test]
async fn rejected_transaction_does_not_hide_a_full_disk() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let (_process, url) = server_with_a_small_disk(&folder).await;
    assert_eq!(put(&url, "2", "x").await.status, 201);
    assert_eq!(put(&url, "2", &large()).await.status, 503);
    assert_eq!(transact(&url, 1, "late").await.problem(), "409 transaction-rejected");
    assert_eq!(ready(&url).await.status, 503);
    assert_eq!(transact(&url, 2, "y").await.status, 200, "the control");
    assert_eq!(ready(&url).await.status, 200);
}

/// SQLite itself rolls back a commit that fails.
#[tokio::test]
async fn transaction_is_committed_after_the_commit_of_another_has_failed() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let (_process, url) = server_with_a_small_disk(&folder).await;
    assert_eq!(transact(&url, 1, &large()).await.status, 503);
    assert_eq!(put(&url, "2", "x").await.status, 201, "the control: the disk has space again");
    assert_eq!(ready(&url).await.status, 200);
    assert_eq!(transact(&url, 3, "y").await.status, 200);
    assert_eq!(wire::request(&url, "GET", "/v1/resources/r", &[], "").await.text(), "y");
}

/// The limit on the size of files is lowered under a running server: no probe succeeds.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn server_is_ready_again_after_probes_have_met_a_full_disk() {
    use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

    let folder = TempDir::with_prefix("fenced-").unwrap();
    let (process, url) = server_with_a_small_disk(&folder).await;
    assert_eq!(put(&url, "1", "x").await.status, 201);
    let limit_files = |bytes| {
        let limit = Rlimit { current: Some(bytes), ..getrlimit(Resource::Fsize) };
        prlimit(Some(process.pid()), Resource::Fsize, limit).unwrap()
    };
    let before = limit_files(0);
    until_ready(&url, 503).await;
    assert_eq!(put(&url, "2", "y").await.status, 503, "the control");
    limit_files(before.current.unwrap());
    assert_eq!(transact(&url, 3, "z").await.status, 200);
    until_ready(&url, 200).await;
}

/// A load balancer must send its requests elsewhere, as long as the server still answers.
#[tokio::test]
async fn draining_server_is_not_ready() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let url = format!("sqlite:{}", folder.path().join("fenced.db").display());
    // It answers new requests for a second only. A test that is too slow begins anew.
    for _ in 0..20 {
        let mut server = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
        assert_eq!(ready(server.url()).await.status, 200, "the control");
        server.process().signal(Signal::TERM).unwrap();
        while let Ok(mut connection) = TcpStream::connect(server.address()).await {
            let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            if connection.write_all(request).await.is_err() {
                break;
            }
            let mut answer = Vec::new();
            if connection.read_to_end(&mut answer).await.is_err() || answer.is_empty() {
                break;
            }
            let answer = String::from_utf8(answer).unwrap();
            if answer.starts_with("HTTP/1.1 503") {
                assert!(answer.contains("the server is draining"), "{answer}");
                return;
            }
        }
    }
    panic!("no server said that it drains");
}

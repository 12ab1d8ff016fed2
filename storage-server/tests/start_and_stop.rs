//! How a storage server starts, fails to start, and stops.

use std::{process::Command, time::Duration};

use rustix::process::Signal;
use sqlx::{Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use testbed::{Postgres, StorageServer, process::Process};
use tokio::io::AsyncWriteExt;

use crate::database::{Database, offer};
use crate::logs::stop;
use crate::programs::{STORAGE_SERVER, storage_server};
use crate::readiness::until_ready;
use crate::wire;

/// Why a server with these arguments does not start.
async fn rejection(arguments: &[&str]) -> String {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let mut command = Command::new(STORAGE_SERVER);
    command.env("FENCED_LISTEN", "127.0.0.1:0").args(arguments).current_dir(folder.path());
    let mut process = Process::spawn("storage-server", &command, folder.path()).unwrap();
    let status = process.exit(Duration::from_secs(20)).await.unwrap();
    assert!(!status.success(), "{arguments:?}");
    let error = std::fs::read_to_string(folder.path().join("storage-server.stderr")).unwrap();
    error.lines().last().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn bad_configuration_is_rejected_with_its_reason() {
    let cases = [
        (["--database-url", "mysql://h/d"], "begins neither with sqlite: nor with postgres:"),
        (["--database-url", "sqlite::memory:"], "can't keep a fence"),
        (["--database-url", "sqlite:/no/such/folder/f.db"], "can't open"),
        (["--database-url", "postgres://u@127.0.0.1:1/d"], "refused"),
        (["--listen", "nowhere"], "can't listen on nowhere"),
        (["--enforcement", "maybe"], "--help"),
        (["--max-value-bytes", "many"], "--help"),
    ];
    for (arguments, reason) in cases {
        let error = rejection(&arguments).await;
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
}

/// A misspelt password must be neither ignored nor logged.
#[tokio::test]
async fn unknown_parameter_of_a_database_url_is_rejected_without_its_value() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let mut command = Command::new(STORAGE_SERVER);
    let url = "postgres://u@127.0.0.1:1/d?sslmode=prefer&pasword=s3cret";
    command.args(["--listen", "127.0.0.1:0", "--database-url", url]);
    let mut process = Process::spawn("storage-server", &command, folder.path()).unwrap();
    let status = process.exit(Duration::from_secs(20)).await.unwrap();
    let error = process.stderr().unwrap();
    assert_eq!(status.code(), Some(1), "{error}");
    assert!(error.contains("the database URL has an unknown parameter: pasword"), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
}

#[tokio::test]
async fn postgres_without_fsync_is_rejected() {
    let postgres = Postgres::start_with(&["fsync=off"]).await.unwrap();
    let error = rejection(&["--database-url", &postgres.url()]).await;
    assert!(error.contains("fsync=off"), "{error}");
}

#[tokio::test]
async fn database_that_cannot_hold_every_name_is_rejected() {
    let postgres = Postgres::start().await.unwrap();
    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    let latin = "create database latin encoding 'LATIN1' locale 'C' template template0";
    sqlx::query(latin).execute(&mut connection).await.unwrap();
    let url = postgres.url().replace("/postgres?", "/latin?");
    let error = rejection(&["--database-url", &url]).await;
    assert!(error.contains("not UTF8"), "{error}");
}

/// After a clean stop, the file holds everything: a copy of it is a backup.
#[tokio::test]
async fn stopped_server_leaves_everything_in_the_sqlite_file() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let file = folder.path().join("fenced.db");
    let mut server =
        StorageServer::start_on(&storage_server(), &format!("sqlite:{}", file.display()), &[])
            .await
            .unwrap();
    let headers = [("Fencing-Token", "34")];
    wire::request(server.url(), "PUT", "/v1/resources/r", &headers, "x").await;
    stop(&mut server).await;

    let copy = folder.path().join("copy.db");
    std::fs::copy(&file, &copy).unwrap();
    let server =
        StorageServer::start_on(&storage_server(), &format!("sqlite:{}", copy.display()), &[])
            .await
            .unwrap();
    let fence = wire::request(server.url(), "GET", "/v1/fences/r", &[], "").await;
    assert_eq!(fence.json()["token"], 34);
}

#[tokio::test]
async fn commits_are_synchronous_whatever_the_database_says() {
    let postgres = Postgres::start_with(&["synchronous_commit=off"]).await.unwrap();
    let server = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let headers = [("Fencing-Token", "1")];
    wire::request(server.url(), "PUT", "/v1/resources/r", &headers, "x").await;
    // What a session has set is shown by a function that runs in it: a trigger notes it.
    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    let trigger = "
        create table seen (setting text);
        create function note() returns trigger language plpgsql as $$ begin
            insert into seen values (current_setting('synchronous_commit')); return new;
        end $$;
        create trigger note before update on storage.resource for each row execute function note()";
    sqlx::raw_sql(trigger).execute(&mut connection).await.unwrap();
    wire::request(server.url(), "PUT", "/v1/resources/r", &headers, "y").await;
    let seen: Vec<String> =
        sqlx::query_scalar("select setting from seen").fetch_all(&mut connection).await.unwrap();
    assert_eq!(seen, ["on"]);
}

/// Only a server's own rows need no check.
#[tokio::test]
async fn database_checks_the_rows_that_commands_write() {
    let database = Database::postgres().await;
    let server = database.serve(&[]).await;
    let trigger = "
        create table seen (setting text);
        create function note() returns trigger language plpgsql as $$ begin
            insert into seen values (current_setting('storage.is_server', true)); return new;
        end $$;
        create trigger note before insert on storage.resource for each row execute function note()";
    database.execute(trigger).await.unwrap();
    offer(&server, "PUT", "/v1/resources/r", 1, "x").await;
    database.run(&["fence", "set", "s", "--token", "1"]).await.printed();
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let seen: Vec<Option<String>> =
        sqlx::query_scalar("select setting from seen").fetch_all(&mut connection).await.unwrap();
    assert_eq!(seen, [Some("on".to_owned()), None]);
}

#[tokio::test]
async fn newer_schema_is_rejected() {
    let postgres = Postgres::start().await.unwrap();
    drop(StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap());
    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    let newer = "
        insert into storage.migrations (version, description, success, checksum, execution_time)
        values (9999, 'of the future', true, '', 0)";
    sqlx::raw_sql(newer).execute(&mut connection).await.unwrap();
    let error = rejection(&["--database-url", &postgres.url()]).await;
    assert!(error.contains("newer than this server knows"), "{error}");

    let folder = TempDir::with_prefix("fenced-").unwrap();
    let url = format!("sqlite:{}", folder.path().join("fenced.db").display());
    drop(StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let newer = newer.replace("storage.", "storage_");
    sqlx::raw_sql(sqlx::AssertSqlSafe(newer)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let error = rejection(&["--database-url", &url]).await;
    assert!(error.contains("newer than this server knows"), "{error}");
}

#[tokio::test]
async fn servers_that_start_at_once_on_a_new_database_all_start() {
    let postgres = Postgres::start().await.unwrap();
    let url = postgres.url();
    let program = storage_server();
    let start = || StorageServer::start_on(&program, &url, &[]);
    let (a, b, c) = tokio::join!(start(), start(), start());
    for server in [a, b, c] {
        let server = server.unwrap();
        until_ready(server.url(), 200).await;
    }
}

/// A client that never finishes its request holds up the end for a while, not for ever.
#[tokio::test]
async fn sigterm_ends_a_server_with_a_half_sent_request() {
    let mut server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let mut half = wire::connect(server.url()).await;
    half.write_all(b"PUT /v1/resources/r HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\n")
        .await
        .unwrap();
    wire::request(server.url(), "GET", "/livez", &[], "").await;
    server.process().signal(Signal::TERM).unwrap();
    let status = server.process().exit(Duration::from_secs(30)).await.unwrap();
    assert_eq!(status.code(), Some(0));
}

/// Operators send them to servers that read their files again, or write their logs again. This one does so
/// without a signal, and must not end without a drain.
#[tokio::test]
async fn sighup_and_sigusr1_do_not_end_the_server() {
    let mut server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    for signal in [Signal::HUP, Signal::USR1] {
        server.process().signal(signal).unwrap();
    }
    assert_eq!(wire::request(server.url(), "GET", "/livez", &[], "").await.status, 200);
    // A process that a signal has ended has no exit code.
    server.process().signal(Signal::TERM).unwrap();
    let status = server.process().exit(Duration::from_secs(30)).await.unwrap();
    assert_eq!(status.code(), Some(0));
}

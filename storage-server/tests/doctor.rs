//! `storage-server doctor` finds what can lose an acknowledged fence.

use std::{io, path::Path, time::Duration};

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;
use testbed::{PgBouncer, Postgres, wait::until_async};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    join,
    net::TcpListener,
};
use tokio_util::task::AbortOnDropHandle;

use crate::database::Database;

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `doctor`, and returns the verdict of a check. The exit code is 0 only if no check fails.
pub(crate) async fn verdict(database: &Database, check: &str, further: &[&str]) -> String {
    let ran = database.run(&[&["doctor", "--json"], further].concat()).await;
    let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    let findings = document["findings"].as_array().unwrap();
    let is_safe = findings.iter().all(|finding| finding["verdict"] == "ok");
    assert_eq!(document["is_safe"], is_safe, "{ran:?}");
    assert_eq!(ran.code, Some(if is_safe { 0 } else { 1 }), "{ran:?}");
    let finding = findings.iter().find(|finding| finding["check"] == check);
    let finding = finding.unwrap_or_else(|| panic!("{check}: {document:#}"));
    // Nothing else is wrong.
    let others = findings.iter().filter(|other| *other != finding);
    for other in others.filter(|other| other["check"] != "standbys") {
        assert_eq!(other["verdict"], "ok", "{document:#}");
    }
    finding["verdict"].as_str().unwrap().to_owned()
}

pub(crate) fn database_at(url: String) -> Database {
    Database { url, folder: tempfile::tempdir().unwrap(), postgres: None }
}

async fn execute(postgres: &Postgres, statements: &[&str]) {
    let mut admin = PgConnection::connect(&postgres.url()).await.unwrap();
    for statement in statements {
        let statement = AssertSqlSafe((*statement).to_owned());
        sqlx::raw_sql(statement).execute(&mut admin).await.unwrap();
    }
}

#[tokio::test]
async fn settings_that_can_lose_fences_are_wrong() {
    for (setting, check) in [("full_page_writes=off", "full_page_writes"), ("fsync=off", "fsync")] {
        let postgres = Postgres::start_with(&[setting]).await.unwrap();
        assert_eq!(verdict(&database_at(postgres.url()), check, &[]).await, "wrong");
    }
}

#[tokio::test]
async fn postgres_that_does_not_answer_is_reported() {
    let postgres = Postgres::start().await.unwrap();
    let database = database_at(postgres.url());
    postgres.pause().await.unwrap();
    let (checked, examined) = join!(database.run(&["--check"]), database.run(&["doctor"]));
    for ran in [checked, examined] {
        let error = ran.failed();
        assert!(error.contains("no answer within 10 s"), "{error}");
    }
}

#[tokio::test]
async fn one_postgres_is_safe_unless_its_table_is_unlogged() {
    let database = Database::postgres().await;
    let printed = database.run(&["doctor"]).await.printed();
    assert!(printed.contains("ok      fsync               on\n"), "{printed}");
    assert!(printed.contains("not created yet"), "{printed}");
    database.run(&["migrate"]).await.printed();
    assert_eq!(verdict(&database, "table", &[]).await, "ok");
    database.execute("alter table storage.resource set unlogged").await.unwrap();
    assert_eq!(verdict(&database, "table", &[]).await, "wrong");
    let ran = database.run(&["doctor"]).await;
    assert!(ran.stdout.contains("WRONG   table               unlogged\n"), "{}", ran.stdout);
    assert!(ran.failed().contains("can lose a fence"));
}

#[tokio::test]
async fn asynchronous_replica_can_lose_a_fence() {
    let postgres = Postgres::start().await.unwrap();
    let database = database_at(postgres.url());
    assert_eq!(verdict(&database, "standbys", &[]).await, "ok");
    let mut replica = postgres.start_replica().await.unwrap();
    let is = async |expected: &str| Ok(verdict(&database, "standbys", &[]).await == expected);
    until_async(PATIENCE, async || is("wrong").await).await.unwrap();
    execute(&postgres, &["alter system set synchronous_standby_names = '*'"]).await;
    execute(&postgres, &["select pg_reload_conf()"]).await;
    until_async(PATIENCE, async || is("ok").await).await.unwrap();
    // A role without the right sees only that there is one.
    execute(&postgres, &["create role blind login"]).await;
    let blind =
        database_at(postgres.url().replacen("postgres://postgres@", "postgres://blind@", 1));
    assert_eq!(verdict(&blind, "standbys", &[]).await, "unknown");
    // The replica itself takes no writes.
    assert_eq!(verdict(&database_at(replica.url()), "primary", &[]).await, "wrong");
    replica.crash().await.unwrap();
    until_async(PATIENCE, async || is("ok").await).await.unwrap();
}

#[tokio::test]
async fn pooler_in_transaction_mode_is_wrong() {
    let postgres = Postgres::start().await.unwrap();
    assert_eq!(verdict(&database_at(postgres.url()), "pooler", &[]).await, "ok");
    // It rejects the settings of sessions, or ignores them.
    let ignore = "ignore_startup_parameters = extra_float_digits, options";
    for settings in [&[][..], &[ignore]] {
        let bouncer = PgBouncer::start_with(&postgres, settings).await.unwrap();
        let pooled = database_at(bouncer.url());
        assert_eq!(verdict(&pooled, "pooler", &[]).await, "wrong", "{settings:?}");
    }
}

/// Answers as Patroni does at its REST address. A real one is in the tests of failovers.
async fn answer_as_patroni(listener: TcpListener, configuration: &str) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let mut request = vec![0; 1024];
        let length = stream.read(&mut request).await?;
        assert!(request[..length].starts_with(b"GET /config HTTP/1.1\r\n"));
        let length = configuration.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{configuration}").as_bytes()).await?;
    }
}

#[tokio::test]
async fn synchronous_mode_must_be_strict() {
    let database = Database::postgres().await;
    for (configuration, expected) in [
        (r#"{"synchronous_mode": true, "synchronous_mode_strict": true}"#, "ok"),
        (r#"{"synchronous_mode": "quorum", "synchronous_mode_strict": "on"}"#, "ok"),
        (r#"{"synchronous_mode": true}"#, "wrong"),
        (r#"{"synchronous_mode": false, "synchronous_mode_strict": true}"#, "wrong"),
        ("[]", "unknown"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answering = tokio::spawn(answer_as_patroni(listener, configuration));
        let answering = AbortOnDropHandle::new(answering);
        let patroni = ["--patroni", url.as_str()];
        assert_eq!(verdict(&database, "patroni", &patroni).await, expected, "{configuration}");
        drop(answering);
        assert_eq!(verdict(&database, "patroni", &patroni).await, "unknown", "it is gone");
    }
    let wrong_usage = database.run(&["doctor", "--patroni", "https://localhost:8008"]).await;
    assert_eq!(wrong_usage.code, Some(2), "{wrong_usage:?}");
}

/// An SQLite file with tables in a folder.
async fn file_in(parent: &Path) -> Database {
    let folder = TempDir::with_prefix_in("fenced-", parent).unwrap();
    let url = format!("sqlite:{}", folder.path().join("fenced.db").display());
    let database = Database { url, folder, postgres: None };
    database.run(&["migrate"]).await.printed();
    database
}

#[tokio::test]
async fn sqlite_file_is_safe_unless_it_is_damaged() {
    let database = file_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).await;
    assert_eq!(verdict(&database, "structure", &[]).await, "ok");
    std::fs::write(database.file("fenced.db"), "no database").unwrap();
    assert_eq!(verdict(&database, "structure", &[]).await, "wrong");
    // A file that is missing is not created.
    let missing = Database::sqlite();
    assert!(missing.run(&["doctor"]).await.failed().contains("can't open"));
    assert!(!missing.file("fenced.db").exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn file_in_memory_is_wrong() {
    let database = file_in(Path::new("/dev/shm")).await;
    assert_eq!(verdict(&database, "file system", &[]).await, "wrong");
}

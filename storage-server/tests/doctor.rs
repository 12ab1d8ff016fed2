//! `storage-server doctor` finds what can lose an acknowledged fence.

use std::{io, path::Path};

use doctor::Verdict;
use serde_json::Value;
use tempfile::TempDir;
use testbed::{PgBouncer, Postgres};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    join,
    net::TcpListener,
};
use tokio_util::task::AbortOnDropHandle;

use crate::database::Database;

/// Runs `doctor`, and returns the verdict of a check. The exit code is 0 only if no check fails.
pub(crate) async fn verdict(database: &Database, check: &str, further: &[&str]) -> String {
    let ran = database.run(&[&["doctor", "--json"], further].concat()).await;
    let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    let worst: Verdict = document["verdict"].as_str().unwrap().parse().unwrap();
    assert_eq!(ran.code, Some(worst.exit_code().into()), "{ran:?}");
    let checks = document["checks"].as_array().unwrap();
    let readme = include_str!("../../doctor/README.md");
    let has_row = |check: &Value| {
        let name = format!("`{}`", check["name"].as_str().unwrap());
        let in_row = |row: &str| row.split('|').nth(2).is_some_and(|cell| cell.contains(&name));
        readme.lines().any(in_row)
    };
    assert!(checks.iter().all(has_row), "{document:#}");
    let found = checks.iter().find(|found| found["name"] == check);
    let found = found.unwrap_or_else(|| panic!("{check}: {document:#}"));
    // Nothing else is wrong.
    let related = ["standbys", "synchronous_standby_names", "hidden_standbys", "pooler", "session"];
    let others = checks.iter().filter(|other| *other != found);
    for other in others.filter(|other| !related.contains(&other["name"].as_str().unwrap())) {
        assert_eq!(other["verdict"], "ok", "{document:#}");
    }
    found["verdict"].as_str().unwrap().to_owned()
}

pub(crate) fn database_at(url: String) -> Database {
    Database { url, folder: tempfile::tempdir().unwrap(), postgres: None }
}

#[tokio::test]
async fn postgres_that_does_not_answer_is_reported() {
    let postgres = Postgres::start().await.unwrap();
    let database = database_at(postgres.url());
    postgres.pause().await.unwrap();
    let (checked, examined) = join!(database.run(&["--check"]), database.run(&["doctor"]));
    for (ran, code) in [(checked, 1), (examined, 69)] {
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains("no answer within 10 s"), "{ran:?}");
    }
}

#[tokio::test]
async fn one_postgres_is_safe_unless_its_table_is_unlogged() {
    let database = Database::postgres().await;
    let printed = database.run(&["doctor"]).await.printed();
    assert!(printed.contains("ok               fsync: on\n"), "{printed}");
    assert!(printed.contains("table: there is none yet"), "{printed}");
    database.run(&["migrate"]).await.printed();
    assert_eq!(verdict(&database, "table", &[]).await, "ok");
    for table in ["storage.common_fence", "storage.migrations", "storage.resource"] {
        database.execute(&format!("alter table {table} set unlogged")).await.unwrap();
        assert_eq!(verdict(&database, "table", &[]).await, "unfit-for-fence", "{table}");
        let ran = database.run(&["doctor"]).await;
        let line = format!("UNFIT FOR FENCE  table: unlogged: {table}\n");
        assert!(ran.stdout.contains(&line), "{}", ran.stdout);
        assert!(ran.stderr.contains("can lose a fence"), "{ran:?}");
        database.execute(&format!("alter table {table} set logged")).await.unwrap();
    }
}

#[tokio::test]
async fn pooler_in_transaction_mode_is_unfit() {
    let postgres = Postgres::start().await.unwrap();
    assert_eq!(verdict(&database_at(postgres.url()), "pooler", &[]).await, "ok");
    assert_eq!(verdict(&database_at(postgres.url()), "session", &[]).await, "ok");
    // It rejects the settings of sessions, or ignores them.
    let ignore = "ignore_startup_parameters = extra_float_digits, options";
    for (settings, session) in [(&[][..], "unfit"), (&[ignore], "ok")] {
        let bouncer = PgBouncer::start_with(&postgres, settings).await.unwrap();
        let pooled = database_at(bouncer.url());
        assert_eq!(verdict(&pooled, "pooler", &[]).await, "unfit-for-fence", "{settings:?}");
        assert_eq!(verdict(&pooled, "session", &[]).await, session, "{settings:?}");
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
        (r#"{"synchronous_mode": true}"#, "unfit-for-fence"),
        (r#"{"synchronous_mode": false, "synchronous_mode_strict": true}"#, "unfit-for-fence"),
        ("[]", "unseen"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answering = tokio::spawn(answer_as_patroni(listener, configuration));
        let answering = AbortOnDropHandle::new(answering);
        let patroni = ["--patroni", url.as_str()];
        assert_eq!(verdict(&database, "patroni", &patroni).await, expected, "{configuration}");
        drop(answering);
        assert_eq!(verdict(&database, "patroni", &patroni).await, "unseen", "it is gone");
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
    assert_eq!(verdict(&database, "structure", &[]).await, "unfit");
    // A file that is missing is not created.
    let missing = Database::sqlite();
    let ran = missing.run(&["doctor"]).await;
    assert!(ran.code == Some(69) && ran.stderr.contains("can't open"), "{ran:?}");
    assert!(!missing.file("fenced.db").exists());
}

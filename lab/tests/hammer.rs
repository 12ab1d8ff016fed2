//! `lab hammer` at every kind of database: the fence holds, and the well-known wrong ways are caught.

use std::{process::Command, time::Duration};

use fence::{mariadb, postgres, sqlite};
use rustix::process::Signal;
use serde_json::Value;
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use testbed::{MariaDb, Postgres, Redis, process::Process};
use tokio::time::{sleep, timeout};

/// Hammers for a second at each isolation level, and returns the figures of each.
async fn hammer(url: &str, arguments: &[&str]) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(["hammer", "--json", "--seconds", "1", "--database", url]).args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (said, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}{error}");
    let report: Value = serde_json::from_str(&said).unwrap();
    report["figures"].as_array().unwrap().clone()
}

fn violations(figures: &[Value], kind: &str) -> u64 {
    figures.iter().map(|figures| figures[kind].as_u64().unwrap()).sum()
}

/// The exit code says the same; this looks from outside, and at whether anything happened at all.
fn assert_held(figures: &[Value], isolation_levels: usize) {
    assert_eq!(figures.len(), isolation_levels);
    for kind in ["stale_writes", "overtaken_reads", "lost_increments"] {
        assert_eq!(violations(figures, kind), 0, "{kind}");
    }
    for level in figures {
        assert!(level["writes"].as_u64().unwrap() > 0, "{level}");
        assert!(level["refused"].as_u64().unwrap() > 0, "{level}");
    }
}

async fn assert_caught(url: &str, variant: &str, kinds: &[&str]) {
    let figures = hammer(url, &["--variant", variant]).await;
    for kind in kinds {
        assert!(violations(&figures, kind) > 0, "{variant}: {kind}");
    }
}

/// How much of the hammer's own there is in a PostgreSQL.
const LEFT_BEHIND: &str = "
    select (select count(*) from fence.fence)
        + (select count(*) from pg_class where relname like 'fenced_hammer%')
        + (select count(*) from pg_proc where proname like '%fenced_hammer%')";

const READS: &[&str] = &["overtaken_reads"];
const READS_AND_INCREMENTS: &[&str] = &["overtaken_reads", "lost_increments"];

#[tokio::test]
async fn postgres_holds_and_wrong_ways_are_caught() {
    let server = Postgres::start().await.unwrap();
    let mut database = PgConnection::connect(&server.url()).await.unwrap();
    postgres::install(&mut database).await.unwrap();
    assert_held(&hammer(&server.url(), &[]).await, 3);
    assert_caught(&server.url(), "exists", READS).await;
    assert_caught(&server.url(), "select-then-update", READS_AND_INCREMENTS).await;
    assert_caught(&server.url(), "row-token", READS_AND_INCREMENTS).await;

    assert_eq!(number(&mut database, LEFT_BEHIND).await, 0, "it removes what it made");
}

#[tokio::test]
async fn mariadb_holds_and_wrong_ways_are_caught() {
    let server = MariaDb::start().await.unwrap();
    let mut database = MySqlConnection::connect(&server.url()).await.unwrap();
    mariadb::install(&mut database).await.unwrap();
    assert_held(&hammer(&server.url(), &[]).await, 3);
    assert_caught(&server.url(), "exists", READS).await;
    assert_caught(&server.url(), "select-then-update", READS_AND_INCREMENTS).await;
    assert_caught(&server.url(), "row-token", READS_AND_INCREMENTS).await;
}

#[tokio::test]
async fn sqlite_holds_and_wrong_ways_are_caught() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let url = format!("sqlite:{}", folder.path().join("hammered.db").display());
    let mut database = SqliteConnection::connect(&format!("{url}?mode=rwc")).await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    assert_held(&hammer(&url, &[]).await, 1);
    assert_caught(&url, "select-then-update", READS_AND_INCREMENTS).await;
    assert_caught(&url, "row-token", READS_AND_INCREMENTS).await;
}

#[tokio::test]
async fn redis_holds_and_wrong_ways_are_caught() {
    let server = Redis::start().await.unwrap();
    assert_held(&hammer(&server.url(), &[]).await, 1);
    assert_caught(&server.url(), "select-then-update", READS).await;
    assert_caught(&server.url(), "row-token", READS_AND_INCREMENTS).await;
}

#[tokio::test]
async fn what_can_t_be_hammered_is_told() {
    let told = |url: String, arguments: Vec<&'static str>| async move {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
        command.args(["hammer", "--seconds", "1", "--database", &url]).args(arguments);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let postgres = Postgres::start().await.unwrap();
    assert!(told(postgres.url(), vec![]).await.contains("migrations/README.md"));
    assert!(told("oracle:x".to_owned(), vec![]).await.contains("begins with none of"));
    let exists = vec!["--variant", "exists"];
    assert!(told("sqlite::memory:".to_owned(), exists.clone()).await.contains("not wrong"));
    let redis = Redis::start().await.unwrap();
    assert!(told(redis.url(), exists).await.contains("select-then-update"));
}

#[tokio::test]
async fn an_interrupted_hammer_removes_what_it_made() {
    let server = Postgres::start().await.unwrap();
    let mut database = PgConnection::connect(&server.url()).await.unwrap();
    postgres::install(&mut database).await.unwrap();
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(["hammer", "--seconds", "60", "--database", &server.url()]);
    let mut hammer = Process::spawn("hammer", &command, folder.path()).unwrap();
    let hammering = async {
        while number(&mut database, "select count(*) from fence.fence").await == 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(20), hammering).await.expect("it begins");
    hammer.signal(Signal::INT).unwrap();
    let status = hammer.exit(Duration::from_secs(20)).await.unwrap();
    assert_eq!(status.code(), Some(2));
    assert_eq!(number(&mut database, LEFT_BEHIND).await, 0);
}

async fn number(database: &mut PgConnection, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(database).await.unwrap()
}

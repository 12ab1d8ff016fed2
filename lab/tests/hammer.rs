//! `lab hammer` on every kind of database: the fence holds, and the well-known wrong ways are
//! caught.

use std::{process::Command, time::Duration};

use fence::{mariadb, postgres, sqlite};
use rustix::process::Signal;
use serde_json::Value;
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use testbed::{Azurite, MariaDb, ObjectStorage, Postgres, Redis, StorageServer, process::Process};
use tokio::time::{sleep, timeout};

use crate::storage_server;

/// Hammers for a second at each isolation level, unless the arguments say otherwise, and returns the
/// exit code, stdout and stderr.
pub(super) async fn run(url: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(["hammer", "--json", "--database", url]).args(arguments);
    command.envs(ObjectStorage::VARIABLES).envs(Azurite::VARIABLES);
    if !arguments.contains(&"--seconds") {
        command.args(["--seconds", "1"]);
    }
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|out| String::from_utf8(out).unwrap());
    (output.status.code(), stdout, stderr)
}

/// Returns the figures of each isolation level.
async fn hammer(url: &str, arguments: &[&str]) -> Vec<Value> {
    let (code, stdout, stderr) = run(url, arguments).await;
    assert_eq!(code, Some(0), "{arguments:?}: {stdout}{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    report["figures"].as_array().unwrap().clone()
}

pub(super) fn violations(figures: &[Value], kind: &str) -> u64 {
    figures.iter().map(|figures| figures[kind].as_u64().unwrap()).sum()
}

/// Hammers, and checks the figures too, not only the exit code, and that there were writes and
/// rejections. On a busy machine, nothing may be rejected within a second.
async fn assert_held(url: &str, isolation_levels: usize) {
    let mut figures = hammer(url, &[]).await;
    if figures.iter().any(|level| level["rejected"] == 0) {
        figures = hammer(url, &["--seconds", "10"]).await;
    }
    assert_eq!(figures.len(), isolation_levels);
    for kind in VIOLATIONS {
        assert_eq!(violations(&figures, kind), 0, "{kind}");
    }
    for level in figures {
        assert!(level["writes"].as_u64().unwrap() > 0, "{level}");
        assert!(level["rejected"].as_u64().unwrap() > 0, "{level}");
    }
}

/// Hammers until a wrong way is caught in each of these kinds. That is a matter of chance, and takes
/// longer on a busy machine.
async fn assert_caught(url: &str, variant: &str, kinds: &[&str]) {
    let mut caught = vec![0; kinds.len()];
    for seconds in ["1", "3", "10"] {
        let arguments = ["--variant", variant, "--seconds", seconds];
        let (code, stdout, stderr) = run(url, &arguments).await;
        let report: Value = serde_json::from_str(&stdout).expect(&stderr);
        let figures = report["figures"].as_array().unwrap();
        let is_caught = VIOLATIONS.iter().any(|kind| violations(figures, kind) > 0);
        assert_eq!(code, Some(i32::from(!is_caught)), "{arguments:?}: {stdout}{stderr}");
        for (caught, kind) in caught.iter_mut().zip(kinds) {
            *caught += violations(figures, kind);
        }
        if !caught.contains(&0) {
            return;
        }
    }
    panic!("{variant}: {kinds:?} were caught {caught:?} times");
}

/// Counts the hammer's own fences, tables and functions in a PostgreSQL.
const LEFT_BEHIND: &str = "
    select (select count(*) from fence.fence)
        + (select count(*) from pg_class where relname like 'fenced_hammer%')
        + (select count(*) from pg_proc where proname like '%fenced_hammer%')";

pub(super) const VIOLATIONS: [&str; 5] =
    ["stale_writes", "overtaken_reads", "forked_writes", "lost_resources", "lost_increments"];
const FORKS: &[&str] = &["forked_writes", "lost_increments"];
const READS: &[&str] = &["overtaken_reads"];
const READS_AND_INCREMENTS: &[&str] = &["overtaken_reads", "lost_increments"];

#[tokio::test]
async fn postgres_holds_and_wrong_ways_are_caught() {
    let server = Postgres::start().await.unwrap();
    let mut database = PgConnection::connect(&server.url()).await.unwrap();
    postgres::install(&mut database).await.unwrap();
    assert_held(&server.url(), 3).await;
    assert_caught(&server.url(), "exists", READS).await;
    assert_caught(&server.url(), "select-then-update", READS_AND_INCREMENTS).await;
    assert_caught(&server.url(), "row-token", READS_AND_INCREMENTS).await;

    assert_eq!(number(&mut database, LEFT_BEHIND).await, 0, "the hammer left something behind");
}

#[tokio::test]
async fn mariadb_holds_and_wrong_ways_are_caught() {
    let server = MariaDb::start().await.unwrap();
    let mut database = MySqlConnection::connect(&server.url()).await.unwrap();
    mariadb::install(&mut database).await.unwrap();
    assert_held(&server.url(), 3).await;
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
    assert_held(&url, 1).await;
    assert_caught(&url, "select-then-update", READS_AND_INCREMENTS).await;
    assert_caught(&url, "row-token", READS_AND_INCREMENTS).await;
}

#[tokio::test]
async fn redis_holds_and_wrong_ways_are_caught() {
    let server = Redis::start().await.unwrap();
    assert_held(&server.url(), 1).await;
    assert_caught(&server.url(), "select-then-update", READS).await;
    assert_caught(&server.url(), "row-token", READS_AND_INCREMENTS).await;
}

#[tokio::test]
async fn object_storage_holds_and_wrong_ways_are_caught() {
    let server = ObjectStorage::start_seaweedfs().await.unwrap();
    let url = server.url("a/b");
    assert_held(&url, 1).await;
    assert_caught(&url, "metadata", READS).await;
    assert_caught(&url, "head-then-put", FORKS).await;
    crate::assert_empty(&server).await;
}

/// The second of the two is the negative control.
#[tokio::test]
async fn storage_servers_hold_only_if_they_check_tokens() {
    let postgres = Postgres::start().await.unwrap();
    let serve = async |arguments: &[&str]| {
        StorageServer::start_on(&storage_server(), &postgres.url(), arguments).await.unwrap()
    };
    let (one, other) = (serve(&[]).await, serve(&[]).await);
    assert_held(&format!("{},{}", one.url(), other.url()), 1).await;
    let unfenced = serve(&["--enforcement", "off"]).await;
    let (code, stdout, stderr) = run(unfenced.url(), &[]).await;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
}

/// The negative control: the fence can't hold on conditional writes that are not atomic.
#[tokio::test]
async fn object_storage_at_length_holds_only_if_its_conditions_are_atomic() {
    let minute = ["--seconds", "60"];
    let server = ObjectStorage::start_seaweedfs().await.unwrap();
    let held = hammer(&server.url("hammered"), &minute).await;
    for kind in VIOLATIONS {
        assert_eq!(violations(&held, kind), 0, "{kind}: {held:?}");
    }
    for variant in ["metadata", "head-then-put"] {
        hammer(&server.url("hammered"), &["--variant", variant, "--seconds", "60"]).await;
    }

    let server = ObjectStorage::start_s3s_fs().await.unwrap();
    let (code, stdout, stderr) = run(&server.url("hammered"), &minute).await;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
}

/// The ETag of Azure follows metadata, too. So a token there is a fence, and the wrong way is another one.
#[tokio::test]
async fn object_storage_at_length_of_azure_holds() {
    let server = Azurite::start().await.unwrap();
    let held = hammer(&server.url("hammered"), &["--seconds", "60"]).await;
    for kind in VIOLATIONS {
        assert_eq!(violations(&held, kind), 0, "{kind}: {held:?}");
    }
    assert_caught(&server.url("hammered"), "head-then-put", &["stale_writes"]).await;
}

#[tokio::test]
async fn errors_say_why_a_database_or_a_variant_is_rejected() {
    let error = async |url: &str, arguments: &[&str]| {
        let (code, _, stderr) = run(url, arguments).await;
        assert_eq!(code, Some(2));
        stderr
    };
    let postgres = Postgres::start().await.unwrap();
    assert!(error(&postgres.url(), &[]).await.contains("migrations/README.md"));
    assert!(error("oracle:x", &[]).await.contains("begins with none of"));
    let exists = ["--variant", "exists"];
    assert!(error("sqlite::memory:", &exists).await.contains("not wrong"));
    let metadata = ["--variant", "metadata"];
    assert!(error("sqlite::memory:", &metadata).await.contains("object storage"));
    assert!(error("s3://bucket/prefix", &exists).await.contains("head-then-put"));
    assert!(error("http://127.0.0.1:9", &exists).await.contains("--enforcement off"));
    let redis = Redis::start().await.unwrap();
    assert!(error(&redis.url(), &exists).await.contains("select-then-update"));
}

#[tokio::test]
async fn an_interrupted_hammer_leaves_nothing_behind() {
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
    timeout(Duration::from_secs(20), hammering).await.expect("the hammer starts");
    hammer.signal(Signal::INT).unwrap();
    let status = hammer.exit(Duration::from_secs(20)).await.unwrap();
    assert_eq!(status.code(), Some(2));
    assert_eq!(number(&mut database, LEFT_BEHIND).await, 0);
}

async fn number(database: &mut PgConnection, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(database).await.unwrap()
}

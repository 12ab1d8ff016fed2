//! A probe of a live SQLite file leaves its locks alone.

use std::{fs::OpenOptions, path::Path, process::Command};

use doctor::Verdict;
use sqlx::{
    ConnectOptions, Connection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};
use tempfile::{NamedTempFile, TempDir};

/// Runs a statement in another process, which then closes the file.
fn sqlite3(file: &Path, sql: &str) -> String {
    let ran = Command::new("sqlite3").arg(file).arg(sql).output();
    let output = ran.expect("the Debian package sqlite3 has the command");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A live file with a write-ahead log, and the connection that uses it.
async fn live_file() -> (TempDir, SqliteConnectOptions, SqliteConnection) {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let options = SqliteConnectOptions::new()
        .filename(folder.path().join("live.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal);
    let mut connection = options.connect().await.unwrap();
    sqlx::raw_sql("create table grants (token integer)").execute(&mut connection).await.unwrap();
    (folder, options, connection)
}

/// Whether another process sees what this connection commits after the other one has come and gone.
async fn keeps_its_log(options: &SqliteConnectOptions, mut connection: SqliteConnection) -> bool {
    let file = options.get_filename();
    sqlite3(file, "select count(*) from grants");
    let insert = sqlx::query("insert into grants values (34)").execute(&mut connection);
    insert.await.unwrap();
    let seen = sqlite3(file, "select token from grants");
    // It would write into the file what it has left in a deleted log.
    connection.close_hard().await.unwrap();
    seen == "34\n"
}

#[tokio::test]
async fn probe_of_a_live_file_does_not_end_its_locks() {
    let (_folder, options, connection) = live_file().await;
    let report = doctor::sqlite::examine(&options).await.unwrap();
    let writable = doctor::sqlite::writable(options.get_filename());
    assert_eq!(writable.verdict, Verdict::Ok, "{report}");
    assert!(keeps_its_log(&options, connection).await);

    // The control: POSIX ends a process's locks on a file when it closes any descriptor of it. The other
    // process then deletes the log in use, and what is committed into it is lost.
    let (_folder, options, connection) = live_file().await;
    drop(OpenOptions::new().write(true).open(options.get_filename()).unwrap());
    assert!(!keeps_its_log(&options, connection).await);
}

#[tokio::test]
async fn mode_that_is_not_in_the_file_is_unseen() {
    let (_folder, options, connection) = live_file().await;
    connection.close().await.unwrap();
    let as_it_is = SqliteConnectOptions::new().filename(options.get_filename());
    for (mode, expected) in [("wal", Verdict::Ok), ("delete", Verdict::Unseen)] {
        sqlite3(options.get_filename(), &format!("pragma journal_mode = {mode}"));
        let report = doctor::sqlite::examine(&as_it_is).await.unwrap();
        let journal = report.checks.iter().find(|check| check.name == "journal_mode").unwrap();
        assert_eq!(journal.verdict, expected, "{report}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn file_in_memory_is_unfit_for_a_fence() {
    for (parent, expected) in
        [("/dev/shm", Verdict::UnfitForFence), (env!("CARGO_TARGET_TMPDIR"), Verdict::Ok)]
    {
        let file = NamedTempFile::new_in(parent).unwrap();
        let report = doctor::sqlite::examine(&SqliteConnectOptions::new().filename(&file)).await;
        let report = report.unwrap();
        let disk = report.checks.iter().find(|check| check.name == "file_system").unwrap();
        assert_eq!(disk.verdict, expected, "{parent}: {report}");
    }
}

#[tokio::test]
async fn missing_file_is_not_created() {
    let (folder, options, _connection) = live_file().await;
    let missing = folder.path().join("missing.db");
    doctor::sqlite::examine(&options.filename(&missing)).await.unwrap_err();
    assert!(!missing.exists());
}

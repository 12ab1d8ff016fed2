//! A table of locks in a file of SQLite. The clock is the machine's: that of the processes.

use std::{fs, process::Command};

use lock_client::{AcquireError, Locks, sqlite::Sqlite};
use sqlx::{Connection, Executor, SqliteConnection};
use tempfile::TempDir;
use testbed::{Clock, wait::until_async};

use super::{
    LONGEST_EXPIRY, MINUTE, SHORT_MS, Storages, TEN_MINUTES, TEXT, TWO_HOLDERS_OF_ONE_TOKEN,
};
use crate::{
    command::{command, events, output},
    lock_service::{lasting, unrenewed},
    names::name,
};

fn url(folder: &TempDir) -> String {
    format!("sqlite:{}", folder.path().join("locks.db").display())
}

/// A new file with locks in a folder.
async fn create() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("locks.db"), "").unwrap();
    let mut connection = SqliteConnection::connect(&url(&folder)).await.unwrap();
    lock_client::sqlite::install(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    folder
}

fn locks(folder: &TempDir) -> Locks {
    Locks::new(Sqlite::open(&url(folder)).unwrap())
}

/// Runs the command `lock-client` with a clock of its own, to its end.
async fn run(clock: &Clock, folder: &TempDir, arguments: &[&str]) -> serde_json::Value {
    let mut command: Command = command(arguments);
    command.args(["--locks", &url(folder)]);
    clock.preload(&mut command);
    let output = output(command).await;
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    events(&output).remove(0)
}

/// The clock jumps ahead, and locks expire at once.
#[tokio::test]
async fn sqlite_when_the_clock_jumps_ahead() {
    let (folder, storages) = (create().await, Storages::start().await);
    let clock = Clock::new(folder.path()).unwrap();
    let locks = locks(&folder);
    let first = storages.first(&locks, "r").await;
    let token = first.lease.token().unwrap().as_u64();
    clock.jump(TEN_MINUTES + MINUTE).unwrap();
    for (server, resource) in storages.0.iter().zip(&first.resources) {
        let second = ["put", "r", "second", "--storage", server.url()];
        let acquired = run(&clock, &folder, &second).await;
        assert!(acquired["token"].as_u64() > Some(token), "{acquired} follows {token}");
        assert!(first.lease.token().is_ok(), "two hold the lock");
        let overwrote = resource.write(TEXT, "first").await.is_ok();
        assert_eq!(overwrote, server.url() == storages.0[0].url(), "only without the fence");
    }
}

/// The clock jumps back, and locks last for longer than their leases. Nobody else is let in.
#[tokio::test]
async fn sqlite_when_the_clock_jumps_back() {
    let folder = create().await;
    let clock = Clock::new(folder.path()).unwrap();
    clock.jump(MINUTE).unwrap();
    run(&clock, &folder, &["acquire", "back", "--ttl", "3s"]).await;
    // This process has the clock as it is after the jump.
    let locks = locks(&folder);
    // The control: a lock that was acquired later, for as long, is free by now.
    let _control = locks.acquire(&name("control"), unrenewed(SHORT_MS)).await.unwrap();
    let is_free = async || Ok(locks.status(&name("control")).await?.held.is_none());
    until_async(LONGEST_EXPIRY, is_free).await.unwrap();
    let rejected = locks.acquire(&name("back"), lasting()).await;
    assert!(matches!(rejected, Err(AcquireError::Contended { .. })), "{rejected:?}");
    run(&clock, &folder, &["acquire", "back", "--no-wait"]).await;
}

#[tokio::test]
async fn sqlite_that_is_restored_from_a_backup() {
    let (folder, storages) = (create().await, Storages::start().await);
    let at_first = locks(&folder);
    let lease = at_first.acquire(&name("r"), lasting()).await.unwrap();
    lease.release().await.unwrap();
    let (file, backup) = (folder.path().join("locks.db"), folder.path().join("backup.db"));
    let mut connection = SqliteConnection::connect(&url(&folder)).await.unwrap();
    let back_up = format!("vacuum into '{}'", backup.display());
    connection.execute(sqlx::AssertSqlSafe(back_up)).await.unwrap();
    let first = storages.first(&at_first, "r").await;
    // A log of the old file must not stay beside the restored one.
    for beside in ["-wal", "-shm"] {
        fs::remove_file(format!("{}{beside}", file.display())).unwrap();
    }
    fs::remove_file(&file).unwrap();
    fs::copy(&backup, &file).unwrap();
    assert_eq!(storages.then(first, &locks(&folder)).await, TWO_HOLDERS_OF_ONE_TOKEN);
}

//! A file of SQLite with the tables of the locks.

use std::str::FromStr;

use doctor::{Report, sql::Session};
use lock_client::Locks;
use sqlx::{Row, Sqlite, sqlite::SqliteConnectOptions};

use super::database::{self, unavailable};
use crate::failure::Failure;

const TABLES: [&str; 2] = ["fenced_lock", "fenced_lock_queue"];
const THERE: &str =
    "select coalesce((select group_concat(name, ' ') from sqlite_master where type = 'table'), '')";

/// Opens the file, and runs all checks.
pub(super) async fn examine(url: &str, locks: &Locks) -> Result<Report, Failure> {
    run_checks(url, locks).await.map_err(|error| unavailable(locks, &error))
}

async fn run_checks(url: &str, locks: &Locks) -> Result<Report, sqlx::Error> {
    let options = SqliteConnectOptions::from_str(url)?;
    let mut session = Session::<Sqlite>::connect(&options).await?;
    let there: String = session.row(THERE).await?.try_get(0)?;
    let there: Vec<_> = there.split(' ').collect();
    // The client of the locks sets the mode of the journal, which the file keeps.
    let locking = database::locking(locks).await;
    let mut report = doctor::sqlite::examine(&options).await?;
    report.checks.push(database::tables(&TABLES, &there, "migrations/sqlite/lock"));
    report.checks.push(locking);
    Ok(report)
}

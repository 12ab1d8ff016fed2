//! A MariaDB with the tables of the locks.

use std::str::FromStr;

use doctor::{Report, sql::Session};
use lock_client::Locks;
use sqlx::{MySql, Row, mysql::MySqlConnectOptions};

use super::database::{self, unavailable};
use crate::failure::Failure;

/// What clients call.
const PROCEDURES: [&str; 6] = [
    "fenced_lock_acquire",
    "fenced_lock_renew",
    "fenced_lock_reissue",
    "fenced_lock_release",
    "fenced_lock_status",
    "fenced_lock_held_names",
];
const THERE: &str = "select coalesce((select group_concat(routine_name separator ' ')
    from information_schema.routines where routine_schema = database()), '')";

/// Connects, and runs all checks.
pub(super) async fn examine(url: &str, locks: &Locks) -> Result<Report, Failure> {
    run_checks(url, locks).await.map_err(|error| unavailable(locks, &error))
}

async fn run_checks(url: &str, locks: &Locks) -> Result<Report, sqlx::Error> {
    let options = MySqlConnectOptions::from_str(url)?;
    let mut report = doctor::mariadb::examine(&options).await?;
    let mut session = Session::<MySql>::connect(&options).await?;
    let there: String = session.row(THERE).await?.try_get(0)?;
    let there: Vec<_> = there.split(' ').collect();
    report.checks.push(database::tables(&PROCEDURES, &there, "migrations/mariadb/lock"));
    report.checks.push(doctor::mariadb::clock(&mut session).await?);
    report.checks.push(database::locking(locks).await);
    Ok(report)
}

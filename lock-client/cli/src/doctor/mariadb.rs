//! A MariaDB with the tables of the locks.

use std::str::FromStr;

use lock_client::Locks;
use sqlx::{
    Row,
    mysql::{MySqlConnectOptions, MySqlRow},
};

use super::{
    database::{self, Session, unavailable},
    finding::{Cure, Finding, Severity},
    report::Report,
};
use crate::failure::Failure;

const OLDEST: (u32, u32) = (10, 5);
/// What clients call.
const PROCEDURES: [&str; 6] = ["acquire", "renew", "reissue", "release", "status", "held_names"];
const FACTS: &str = "select version() as version, current_user() as user_name,
    cast(@@innodb_flush_log_at_trx_commit as signed) as flush,
    cast(@@read_only as signed) as read_only,
    cast(@@sync_binlog as signed) as sync_binlog, cast(@@log_bin as signed) as log_bin,
    coalesce((select group_concat(routine_name separator ' ') from information_schema.routines
        where routine_schema = database() and routine_name like 'fenced\\_lock\\_%'), '')
        as procedures";
/// A server without Galera does not have the variable.
const GALERA: &str = "select count(*) as galera from information_schema.global_variables
    where variable_name = 'WSREP_ON' and variable_value = 'ON'";
const CLOCK: &str = "select cast(floor(unix_timestamp(now)) as signed) as seconds,
    cast(microsecond(now) as signed) as micros from (select sysdate(6) as now) as clock";

/// Connects, and runs all checks.
pub(super) async fn examine(url: &str, locks: &Locks) -> Result<Report, Failure> {
    run_checks(url, locks).await.map_err(|error| unavailable(locks, &error))
}

async fn run_checks(url: &str, locks: &Locks) -> Result<Report, sqlx::Error> {
    let options = MySqlConnectOptions::from_str(url)?;
    let mut session = Session::<sqlx::MySql>::connect(&options).await?;
    let facts = session.row(FACTS).await?;
    let galera: i64 = session.row(GALERA).await?.try_get("galera")?;
    let text = |column| facts.try_get::<String, _>(column);
    let (version_text, procedures) = (text("version")?, text("procedures")?);
    let procedures: Vec<_> =
        procedures.split(' ').filter_map(|name| name.strip_prefix("fenced_lock_")).collect();
    let missing: Vec<_> =
        PROCEDURES.into_iter().filter(|procedure| !procedures.contains(procedure)).collect();
    let mut findings =
        vec![version(&version_text), database::tables(&missing, "migrations/mariadb/lock")];
    findings.push(durability(&facts)?);
    findings.extend(replication(&facts, galera)?);
    let clock = |row: &MySqlRow| Ok((row.try_get("seconds")?, row.try_get("micros")?));
    findings.push(session.clock(CLOCK, clock).await?);
    findings.push(database::locking(locks).await);
    Ok(Report::from_findings(format!("mariadb {version_text}"), Some(text("user_name")?), findings))
}

fn version(version: &str) -> Finding {
    const CHECK: &str = "version";
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version.contains("MariaDB") && number >= OLDEST {
        return Finding::ok(CHECK, version);
    }
    Finding::bad(
        Severity::Unusable,
        CHECK,
        format!("{version} is not MariaDB 10.5 or newer"),
        "the procedures of the locks need its SQL",
        Cure::advice("name a MariaDB 10.5 or newer"),
    )
}

/// Checks what a crash could lose.
fn durability(facts: &MySqlRow) -> Result<Finding, sqlx::Error> {
    const CHECK: &str = "durability";
    const AGAIN: &str = "a power loss loses the last grants, and their tokens are issued again";
    let flush: i64 = facts.try_get("flush")?;
    let (log, sync): (i64, i64) = (facts.try_get("log_bin")?, facts.try_get("sync_binlog")?);
    let cure =
        |command: &str, advice| Cure { commands: vec![command.to_owned()], ..Cure::advice(advice) };
    if flush != 1 && flush != 3 {
        return Ok(Finding::bad(
            Severity::TokenLoss,
            CHECK,
            format!("innodb_flush_log_at_trx_commit is {flush}"),
            AGAIN,
            cure(
                "set global innodb_flush_log_at_trx_commit = 1",
                "write each commit to the disk before its answer; set it in the option file, too",
            ),
        ));
    }
    // InnoDB leaves the sync of a commit to the binary log. A restart rolls back each transaction that
    // the binary log has lost. With 3, InnoDB syncs the commit all the same.
    if log != 0 && sync != 1 && flush != 3 {
        return Ok(Finding::bad(
            Severity::TokenLoss,
            CHECK,
            format!("the binary log is not synced at each commit: sync_binlog is {sync}"),
            AGAIN,
            cure(
                "set global sync_binlog = 1",
                "sync the binary log before each answer; set it in the option file, too",
            ),
        ));
    }
    Ok(Finding::ok(CHECK, "each grant is on the disk before its answer"))
}

/// Checks whether another server may replace this one.
fn replication(facts: &MySqlRow, galera: i64) -> Result<Vec<Finding>, sqlx::Error> {
    const CHECK: &str = "replication";
    let mut findings = Vec::new();
    if facts.try_get::<i64, _>("read_only")? != 0 {
        findings.push(Finding::bad(
            Severity::Unusable,
            CHECK,
            "it is read-only, as replicas are",
            "no lock can be acquired here, because it accepts no writes",
            Cure::advice("name the primary"),
        ));
    }
    if galera > 0 {
        findings.push(Finding::bad(
            Severity::TokenLoss,
            CHECK,
            "it is a node of a Galera cluster",
            "two nodes may grant one lock at the same time, with the same token",
            Cure::advice("let all clients name the same node, or a server outside of the cluster"),
        ));
    }
    if facts.try_get::<i64, _>("log_bin")? != 0 {
        findings.push(Finding::bad(
            Severity::Warning,
            CHECK,
            "it writes a binary log, as for replicas",
            "replicas receive a grant after its answer: a failover to one that has not received it \
             issues the token a second time",
            Cure::advice("promote no replica that lags behind; the fence protects against that"),
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "a server that writes no binary log for replicas"));
    }
    Ok(findings)
}

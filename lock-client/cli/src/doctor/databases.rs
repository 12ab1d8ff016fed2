//! PostgreSQL, MariaDB and SQLite with the tables of the locks.

use std::{str::FromStr, time::Duration};

use doctor::{
    Check, Report, Verdict, mariadb, postgres,
    sql::{Session, limited},
    sqlite,
};
use lock_client::{Locks, Terms, Ttl, postgres::with_environment};
use postgres_primary::{ANSWER_LIMIT, Hosts, Newest, find_primary};
use sqlx::{
    ConnectOptions, MySql, Postgres, Row, Sqlite,
    error::BoxDynError,
    mysql::MySqlConnectOptions,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
    sqlite::SqliteConnectOptions,
};
use tokio::time::timeout;

use super::locking::{self, UNUSABLE};
use crate::{failure::Failure, lock_service::Service};

/// The name of the lock that is acquired as a test. A database never deletes the row of a lock, so
/// that every run has the same.
const LOCK: &str = "lock-client-doctor";
const TTL: Duration = Duration::from_secs(10);
/// How long a notification may take.
const NOTIFICATION: Duration = Duration::from_secs(2);
const POLLING: &str =
    "no lock and no token, but waiting clients ask about once a second whether a lock was freed";
/// What clients call, in PostgreSQL and MariaDB.
const FUNCTIONS: [&str; 6] = ["acquire", "renew", "reissue", "release", "status", "held_names"];
const IN_POSTGRES: &str = "select coalesce((select pg_catalog.string_agg(p.proname, ' ')
    from pg_catalog.pg_proc p
    where p.pronamespace = pg_catalog.to_regnamespace('fenced_lock')
        and pg_catalog.has_schema_privilege(p.pronamespace, 'usage')), '')";
const IN_MARIADB: &str = "select coalesce((
    select group_concat(replace(routine_name, 'fenced_lock_', '') separator ' ')
    from information_schema.routines
    where routine_schema = database() and routine_name like 'fenced\\_lock\\_%'), '')";
const TABLES: [&str; 2] = ["fenced_lock", "fenced_lock_queue"];
const IN_SQLITE: &str =
    "select coalesce((select group_concat(name, ' ') from sqlite_master where type = 'table'), '')";

pub(super) async fn examine(service: &Service<'_>, locks: &Locks) -> Result<Report, Failure> {
    let examined = match *service {
        Service::Postgres(url) => postgres(url, locks).await,
        Service::MariaDb(url) => mariadb(url, locks).await,
        Service::Sqlite(url) => sqlite(url, locks).await,
        _ => unreachable!("the other services have no tables"),
    };
    examined.map_err(|error| {
        // `Display` adds the line in PostgreSQL's own source.
        let reason = match error.as_database_error() {
            Some(error) => error.message().to_owned(),
            None => error.to_string(),
        };
        Failure::unavailable(format!("{}: {reason}", locks.address()))
    })
}

async fn postgres(url: &str, locks: &Locks) -> Result<Report, sqlx::Error> {
    // The environment may have a part of the address.
    let hosts = Hosts::parse(&with_environment(url), |url| {
        // PgBouncer rejects a connection that sets it.
        Ok::<_, BoxDynError>(PgConnectOptions::from_url(url)?.extra_float_digits(None))
    });
    let hosts = hosts.map_err(sqlx::Error::Configuration)?;
    let found = find_primary(&hosts, &Newest::default(), ANSWER_LIMIT).await;
    let primary = found.map_err(sqlx::Error::config)?.host;
    let options = hosts.options(primary).clone();
    let mut report = postgres::examine(&options).await?;
    report.checks = report.checks.into_iter().map(as_of_locks).collect();
    let mut session = Session::<Postgres>::connect(&options).await?;
    let there: String = session.row(IN_POSTGRES).await?.try_get(0)?;
    report.checks.push(tables(&FUNCTIONS, &there, "migrations/postgres/lock"));
    report.checks.push(postgres::clock(&mut session).await?);
    report.checks.push(postgres::connections(&mut session).await?);
    report.checks.push(locking(locks).await);
    // A session that other clients get too receives notifications for them. A standby takes no LISTEN.
    let needed = ["pooler", "primary"];
    let mut needed = report.checks.iter().filter(|check| needed.contains(&&*check.name));
    if needed.all(|check| check.verdict == Verdict::Ok) {
        report.checks.push(waking(session, options).await?);
    }
    Ok(report)
}

/// The locks set what they need by themselves, and work behind a pooler.
fn as_of_locks(check: Check) -> Check {
    match &*check.name {
        "synchronous_commit" | "stored_synchronous_commit" => check.lowered(
            "locks and tokens are safe, because the functions of the locks set it to on; but what \
             other clients commit may be lost",
        ),
        "journal_mode" => check.lowered(
            "no token, because each client of the locks would set wal, and can't; but clients wait for each other's reads",
        ),
        "pooler" => check.lowered(POLLING),
        _ => check,
    }
}

/// Checks whether waiters are notified.
async fn waking(
    mut session: Session<Postgres>,
    options: PgConnectOptions,
) -> Result<Check, sqlx::Error> {
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let channel = format!("fenced_lock_doctor_{}", std::process::id());
    let mut listener = limited(PgListener::connect_with(&pool)).await?;
    limited(listener.listen(&channel)).await?;
    session.row(&format!("select pg_catalog.pg_notify('{channel}', '')")).await?;
    let (arrives, found) = match timeout(NOTIFICATION, listener.recv()).await {
        Ok(Ok(_)) => (true, "notifications arrive".to_owned()),
        Ok(Err(error)) => (false, format!("notifications can't be received: {error}")),
        Err(_) => (false, format!("no notification arrives within {} s", NOTIFICATION.as_secs())),
    };
    let cure = "name PostgreSQL itself, or a pooler in session mode";
    Ok(Check::ok("waking", found).unless(arrives, Verdict::Warning, POLLING, cure))
}

async fn mariadb(url: &str, locks: &Locks) -> Result<Report, sqlx::Error> {
    let options = MySqlConnectOptions::from_str(url)?;
    let mut report = mariadb::examine(&options).await?;
    let mut session = Session::<MySql>::connect(&options).await?;
    let there: String = session.row(IN_MARIADB).await?.try_get(0)?;
    report.checks.push(tables(&FUNCTIONS, &there, "migrations/mariadb/lock"));
    report.checks.push(mariadb::clock(&mut session).await?);
    report.checks.push(mariadb::connections(&mut session).await?);
    report.checks.push(locking(locks).await);
    Ok(report)
}

async fn sqlite(url: &str, locks: &Locks) -> Result<Report, sqlx::Error> {
    let options = SqliteConnectOptions::from_str(url)?;
    let mut session = Session::<Sqlite>::connect(&options.clone().read_only(true)).await?;
    let there: String = session.row(IN_SQLITE).await?.try_get(0)?;
    session.close().await?;
    let tables = tables(&TABLES, &there, "migrations/sqlite/lock");
    // Each client of the locks sets the mode wal, which the file keeps. A file of something else stays as it is.
    let locking = match tables.verdict {
        Verdict::Ok => Some(locking(locks).await),
        _ => None,
    };
    let mut report = sqlite::examine(&options).await?;
    report.checks = report.checks.into_iter().map(as_of_locks).collect();
    report.checks.push(sqlite::writable(options.get_filename()));
    report.checks.push(tables);
    report.checks.extend(locking);
    Ok(report)
}

/// Acquires, renews and releases a lock. Another run of this check may have it at the moment.
async fn locking(locks: &Locks) -> Check {
    let name = LOCK.parse().expect("it is a valid name");
    let ttl = Ttl::new(TTL).expect("10 s is a valid ttl");
    let used = locking::use_lock(locks, &name, Terms::new(ttl).wait(TTL).fair()).await;
    let done = format!("acquired, renewed and released a lock; the row of `{name}` stays");
    locking::check(used, done, "resolve the error, and the other checks; then run this again")
}

/// Reports functions or tables of the locks that are missing. Spaces separate those that are there.
fn tables(needed: &[&str], there: &str, migration: &str) -> Check {
    let missing = needed.iter().filter(|name| !there.split(' ').any(|there| there == **name));
    let missing = missing.copied().collect::<Vec<_>>().join(", ");
    let found = match missing.as_str() {
        "" => "the locks are installed".to_owned(),
        missing => format!("missing, or not allowed for this user: {missing}"),
    };
    Check::ok("lock_tables", found).unless(
        missing.is_empty(),
        Verdict::Unfit,
        UNUSABLE,
        format!("apply {migration} (again), and give the user its rights: migrations/README.md"),
    )
}

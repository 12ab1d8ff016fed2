//! A PostgreSQL with the tables of the locks.

use std::{str::FromStr, time::Duration};

use doctor::{
    Check, Report, Verdict,
    sql::{Session, limited},
};
use lock_client::Locks;
use sqlx::{
    Postgres, Row,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::time::timeout;

use super::database::{self, unavailable};
use crate::failure::Failure;

/// What clients call.
const FUNCTIONS: [&str; 6] = ["acquire", "renew", "reissue", "release", "status", "held_names"];
const THERE: &str = "select coalesce((select pg_catalog.string_agg(p.proname, ' ')
    from pg_catalog.pg_proc p
    where p.pronamespace = pg_catalog.to_regnamespace('fenced_lock')
        and pg_catalog.has_schema_privilege(p.pronamespace, 'usage')), '')";
/// How long a notification may take.
const NOTIFICATION: Duration = Duration::from_secs(2);

/// Connects, and runs all checks.
pub(super) async fn examine(url: &str, locks: &Locks) -> Result<Report, Failure> {
    run_checks(url, locks).await.map_err(|error| unavailable(locks, &error))
}

async fn run_checks(url: &str, locks: &Locks) -> Result<Report, sqlx::Error> {
    // PgBouncer rejects a connection that sets it.
    let options = PgConnectOptions::from_str(url)?.extra_float_digits(None);
    let mut report = doctor::postgres::examine(&options, None).await?;
    report.checks = report.checks.into_iter().map(as_of_locks).collect();
    let mut session = Session::<Postgres>::connect(&options).await?;
    let there: String = session.row(THERE).await?.try_get(0)?;
    let there: Vec<_> = there.split(' ').collect();
    report.checks.push(database::tables(&FUNCTIONS, &there, "migrations/postgres/lock"));
    report.checks.push(doctor::postgres::clock(&mut session).await?);
    report.checks.push(database::locking(locks).await);
    // A session that other clients get too receives notifications for them.
    if report.checks.iter().all(|check| check.name != "pooler" || check.verdict == Verdict::Ok) {
        report.checks.push(waking(session, options).await?);
    }
    Ok(report)
}

/// The functions of the locks set what they need, and work behind a pooler.
fn as_of_locks(check: Check) -> Check {
    match &*check.name {
        "synchronous_commit" | "stored_synchronous_commit" => check.lowered(
            "no lock and no token, because the functions of the locks set it to on; but commits of others may \
             be lost",
            None,
        ),
        "pooler" => check.lowered(
            "no lock and no token, but waiting clients ask about once a second whether a lock was freed",
            Some("name PostgreSQL itself, or a pooler in session mode".into()),
        ),
        _ => check,
    }
}

/// Checks whether waiters are notified.
async fn waking(
    mut session: Session<Postgres>,
    options: PgConnectOptions,
) -> Result<Check, sqlx::Error> {
    const NAME: &str = "waking";
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let channel = format!("fenced_lock_doctor_{}", std::process::id());
    let mut listener = limited(PgListener::connect_with(&pool)).await?;
    limited(listener.listen(&channel)).await?;
    session.row(&format!("select pg_catalog.pg_notify('{channel}', '')")).await?;
    let problem = match timeout(NOTIFICATION, listener.recv()).await {
        Ok(Ok(_)) => return Ok(Check::ok(NAME, "notifications arrive")),
        Ok(Err(error)) => format!("notifications can't be received: {error}"),
        Err(_) => format!("no notification arrives within {} s", NOTIFICATION.as_secs()),
    };
    Ok(Check::bad(
        Verdict::Warning,
        NAME,
        problem,
        "no lock and no token, but waiting clients ask about once a second whether a lock was freed",
        "name PostgreSQL itself, or a pooler in session mode",
    ))
}

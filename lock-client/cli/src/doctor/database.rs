//! What the checks of all databases share.

use std::{
    io,
    time::{Duration, Instant, SystemTime},
};

use lock_client::{Locks, Terms, Ttl};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Database, Executor, raw_sql};
use tokio::time::timeout;

use super::{
    clock::{self, Sample},
    finding::{Cure, Finding, Severity},
    locking,
};
use crate::failure::Failure;

/// The time limit of one answer.
const LIMIT: Duration = Duration::from_secs(5);
/// The name of the lock that is acquired as a test. A database never deletes the row of a lock, so
/// that every run has the same.
const LOCK: &str = "lock-client-doctor";
const TTL: Duration = Duration::from_secs(10);
/// How often the clocks are compared.
const SAMPLES: usize = 5;

/// A connection to a database.
pub(super) struct Session<D: Database> {
    pub(super) connection: D::Connection,
}

impl<D: Database> Session<D>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
{
    /// Connects to a database.
    pub(super) async fn connect(
        options: &<D::Connection as Connection>::Options,
    ) -> Result<Self, sqlx::Error> {
        Ok(Self {
            connection: limited(options.clone().disable_statement_logging().connect()).await?,
        })
    }

    /// Sends a query, and returns its only row. It is not prepared: PgBouncer in transaction mode may
    /// not know it.
    pub(super) async fn row(&mut self, sql: &str) -> Result<D::Row, sqlx::Error> {
        limited(raw_sql(AssertSqlSafe(sql.to_owned())).fetch_one(&mut self.connection)).await
    }

    /// Compares the clock of the database with this machine's. The query returns seconds and
    /// microseconds.
    pub(super) async fn clock(
        &mut self,
        sql: &str,
        read: impl Fn(&D::Row) -> Result<(i64, i64), sqlx::Error>,
    ) -> Result<Finding, sqlx::Error> {
        let mut samples = Vec::new();
        for _ in 0..SAMPLES {
            let (our_time, sent) = (SystemTime::now(), Instant::now());
            let row = self.row(sql).await?;
            let (seconds, micros) = read(&row)?;
            let time = (seconds.unsigned_abs(), micros.unsigned_abs());
            samples.push(Sample::new(our_time, sent.elapsed(), time));
        }
        Ok(clock::best(samples))
    }
}

/// Limits the time of an exchange.
pub(super) async fn limited<T>(
    exchange: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    timeout(LIMIT, exchange).await.unwrap_or_else(|_| {
        let reason = format!("no answer within {} s", LIMIT.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, reason).into())
    })
}

/// The failure that a database does not answer.
pub(super) fn unavailable(locks: &Locks, error: &sqlx::Error) -> Failure {
    // `Display` adds the line in PostgreSQL's own source.
    let reason = match error.as_database_error() {
        Some(error) => error.message().to_owned(),
        None => error.to_string(),
    };
    Failure::Unavailable(format!("{}: {reason}", locks.address()))
}

/// Acquires, renews and releases a lock. Another run of this check may have it at the moment.
pub(super) async fn locking(locks: &Locks) -> Finding {
    let name = LOCK.parse().expect("it is a valid name");
    let ttl = Ttl::new(TTL).expect("10 s is a valid ttl");
    match locking::use_lock(locks, &name, Terms::new(ttl).wait(TTL).fair()).await {
        Ok(()) => {
            let done = "acquired, renewed and released a lock";
            Finding::ok(locking::CHECK, format!("{done}; the row of `{name}` stays"))
        }
        Err(problem) => Finding::bad(
            Severity::Unusable,
            locking::CHECK,
            problem,
            locking::UNUSABLE,
            Cure::advice("resolve the error, and the other findings; then run this again"),
        ),
    }
}

/// Reports functions or tables that are missing.
pub(super) fn tables(missing: &[&str], migration: &'static str) -> Finding {
    const CHECK: &str = "tables";
    if missing.is_empty() {
        return Finding::ok(CHECK, "the locks are installed");
    }
    Finding::bad(
        Severity::Unusable,
        CHECK,
        format!("missing, or not allowed for this user: {}", missing.join(", ")),
        locking::UNUSABLE,
        Cure::advice(format!(
            "apply {migration} (again), and give the user its rights: migrations/README.md"
        )),
    )
}

//! A PostgreSQL: what a crash, a failover or a weaker session loses.
//!
//! The checks are the rows of `fence.doctor()`. Its query is sent as it stands in
//! `migrations/postgres/fence/0005_doctor.sql`, because the fence need not be installed.

#[cfg(feature = "patroni")]
mod patroni;

use sqlx::{Postgres, Row, postgres::PgConnectOptions};

#[cfg(feature = "patroni")]
pub use self::patroni::{PatroniUrl, ask_patroni};
use crate::{
    check::{Check, Verdict},
    clock,
    report::Report,
    sql::Session,
};

const FENCE_DOCTOR: &str = include_str!("postgres/fence_doctor.sql");
/// The version that the SQL of the fence and of the locks needs.
const OLDEST: i32 = 130_000;
/// How often two sessions are compared. A pooler may give different ones to both now and then.
const COMPARISONS: usize = 5;
const CLOCK: &str =
    "select (extract(epoch from pg_catalog.clock_timestamp()) * 1000000)::pg_catalog.int8";

/// Runs all checks.
///
/// The sessions should set nothing by themselves: a setting of theirs hides the server's.
///
/// # Errors
/// If the database can't be reached.
pub async fn examine(options: &PgConnectOptions) -> Result<Report, sqlx::Error> {
    // A pooler may reject a connection that sets this.
    let options = options.clone().extra_float_digits(None);
    let mut session = Session::<Postgres>::connect(&options).await?;
    let facts = "select pg_catalog.current_setting('server_version'),
        pg_catalog.current_setting('server_version_num')::pg_catalog.int4,
        current_user::pg_catalog.text";
    let facts = session.row(facts).await?;
    let version: &str = facts.try_get(0)?;
    let server = format!("postgresql {}", version.split(' ').next().unwrap_or(version));
    let is_new = facts.try_get::<i32, _>(1)? >= OLDEST;
    let version = Check::ok("version", server.as_str()).unless(
        is_new,
        Verdict::Unfit,
        "the functions of the fence and of the locks can't be created there",
        "update PostgreSQL to 13 or newer",
    );
    let mut report = Report::new(server, Some(facts.try_get(2)?), vec![version]);
    if is_new {
        let (settings, unseen) = settings(&mut session).await?;
        report.checks.extend(settings);
        report.unseen = unseen;
        report.checks.push(match Session::connect(&options).await {
            Ok(mut other) => pooler(&mut session, &mut other).await?,
            Err(error) => {
                let found = format!("a second connection failed: {error}");
                Check::unseen("pooler", found, "allow this user another connection")
            }
        });
    }
    Ok(report)
}

/// Compares the server's clock with this machine's.
///
/// # Errors
/// If the database does not answer any more.
pub async fn clock(session: &mut Session<Postgres>) -> Result<Check, sqlx::Error> {
    clock::compare(async || Ok(session.row(CLOCK).await?.try_get::<i64, _>(0)?.into())).await
}

/// The rows of `fence.doctor()`, and what no check sees.
async fn settings(
    session: &mut Session<Postgres>,
) -> Result<(Vec<Check>, Option<String>), sqlx::Error> {
    let query = FENCE_DOCTOR.split("$$").nth(1).expect("the function has a body");
    // The function sets the same path. The transaction keeps it from the next user of a pooled session.
    let message =
        format!("begin read only; set local search_path to pg_catalog, pg_temp; {query}; commit");
    let (mut checks, mut unseen) = (Vec::new(), None);
    for row in session.rows(&message).await? {
        let [name, verdict, found]: [String; 3] =
            [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?];
        let [why, cure]: [Option<String>; 2] = [row.try_get(3)?, row.try_get(4)?];
        if name == "unseen" {
            unseen = why;
            continue;
        }
        let verdict = verdict.parse().expect("the query has the words of a verdict");
        let (why, cure) = (why.map(Into::into), cure.map(Into::into));
        checks.push(Check { name: name.into(), verdict, found, why, cure });
    }
    Ok((checks, unseen))
}

/// Checks that each connection has a session of its own.
async fn pooler(
    session: &mut Session<Postgres>,
    other: &mut Session<Postgres>,
) -> Result<Check, sqlx::Error> {
    const PROCESS: &str = "select pg_catalog.pg_backend_pid()";
    let mut are_shared = false;
    for _ in 0..COMPARISONS {
        let [one, another] = [session.row(PROCESS).await?, other.row(PROCESS).await?];
        are_shared |= one.try_get::<i32, _>(0)? == another.try_get::<i32, _>(0)?;
    }
    let found = if are_shared {
        "two connections share a session"
    } else {
        "each connection has a session"
    };
    Ok(Check::ok("pooler", found).unless(
        !are_shared,
        Verdict::UnfitForFence,
        "a pooler in transaction mode, as of PgBouncer, gives the statements of one client to different sessions, and \
         drops what a client has set for its own, such as synchronous_commit",
        "connect without it, or in session mode",
    ))
}

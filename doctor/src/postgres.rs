//! A PostgreSQL: what a crash, a failover or a weaker session loses.
//!
//! The checks of its settings are the rows of `migrations/postgres/doctor.sql`.

#[cfg(feature = "patroni")]
mod patroni;

use std::time::Duration;

use sqlx::{
    Postgres, Row,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::time::timeout;

#[cfg(feature = "patroni")]
pub use self::patroni::{PatroniUrl, ask_patroni};
use crate::{
    check::{Check, Verdict},
    clock, connections,
    report::Report,
    sql::{Session, limited},
};

const SETTINGS: &str = include_str!("postgres/doctor.sql");
/// The version that the SQL of the fence and of the locks needs.
const OLDEST: i32 = 130_000;
/// How long a notification may take.
const NOTIFICATION: Duration = Duration::from_secs(2);
/// The limit of connections that is reached first, of this user's, the database's and the server's, and
/// how many of those are open.
const CONNECTIONS: &str = "
    select max, open::pg_catalog.int4
    from (
        select rolconnlimit, (select pg_catalog.count(*) from pg_catalog.pg_stat_activity
            where usename = current_user)
        from pg_catalog.pg_roles where rolname = current_user and rolconnlimit >= 0
        union all
        select datconnlimit, (select pg_catalog.count(*) from pg_catalog.pg_stat_activity
            where datname = pg_catalog.current_database())
        from pg_catalog.pg_database
        where datname = pg_catalog.current_database() and datconnlimit >= 0
        union all
        select pg_catalog.current_setting('max_connections')::pg_catalog.int4
                - pg_catalog.current_setting('superuser_reserved_connections')::pg_catalog.int4,
            (select pg_catalog.count(*) from pg_catalog.pg_stat_activity where datid is not null)
    ) as limits (max, open)
    order by max - open limit 1";
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
        report.checks.push(pooler(&options).await);
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

/// The checks of the settings, and what no check sees.
async fn settings(
    session: &mut Session<Postgres>,
) -> Result<(Vec<Check>, Option<String>), sqlx::Error> {
    let (mut checks, mut unseen) = (Vec::new(), None);
    for row in session.rows(SETTINGS).await? {
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

/// Compares the limits of connections with what clients of the locks need.
///
/// # Errors
/// If the database does not answer any more.
pub async fn connections(session: &mut Session<Postgres>) -> Result<Check, sqlx::Error> {
    let row = session.row(CONNECTIONS).await?;
    let (limit, open): (i32, i32) = (row.try_get(0)?, row.try_get(1)?);
    Ok(connections::room(limit.into(), open.into(), 2))
}

/// Checks that each connection has a session of its own: what one session sends arrives at another that
/// listens. To compare their processes proves nothing, because a pooler may give a session to each
/// statement in turn.
pub async fn pooler(options: &PgConnectOptions) -> Check {
    let sender = match Session::connect(options).await {
        Ok(sender) => sender,
        Err(error) => {
            let found = format!("a second connection failed: {error}");
            return Check::unseen("pooler", found, "allow this user another connection");
        }
    };
    let (has_session, found) = match is_notified(sender, options.clone()).await {
        Ok(true) => (true, "each connection has a session".to_owned()),
        Ok(false) => (false, "connections share sessions: no notification arrives".to_owned()),
        // The notification came back to its sender.
        Err(error @ sqlx::Error::Protocol(_)) => {
            (false, format!("connections share sessions: {error}"))
        }
        // A standby takes no LISTEN.
        Err(error) => (true, format!("not known: {error}")),
    };
    Check::ok("pooler", found).unless(
        has_session,
        Verdict::UnfitForFence,
        "a pooler in transaction mode, as of PgBouncer, gives the statements of one client to different sessions, and \
         drops what a client has set for its own, such as synchronous_commit",
        "connect without it, or in session mode",
    )
}

/// Whether a session is notified by another one.
async fn is_notified(
    mut sender: Session<Postgres>,
    options: PgConnectOptions,
) -> Result<bool, sqlx::Error> {
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let channel = format!("fence_doctor_{}", std::process::id());
    let mut listener = limited(PgListener::connect_with(&pool)).await?;
    limited(listener.listen(&channel)).await?;
    // If the sender has the session of the listener, the notification comes back to it, which is an error. Its
    // commit waits for no standby, which may be missing.
    let send = format!(
        "begin; set local synchronous_commit = off; select pg_catalog.pg_notify('{channel}', ''); commit"
    );
    sender.row(&send).await?;
    timeout(NOTIFICATION, listener.recv()).await.map_or(Ok(false), |arrived| arrived.map(|_| true))
}

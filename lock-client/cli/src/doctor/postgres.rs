//! A PostgreSQL with the tables of the locks.

use std::{str::FromStr, time::Duration};

use lock_client::Locks;
use sqlx::{
    Row,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgRow},
};
use tokio::time::timeout;

use super::{
    database::{self, Session, limited, unavailable},
    finding::{Cure, Finding, Severity},
    report::Report,
};
use crate::failure::Failure;

const OLDEST: i32 = 130_000;
/// What clients call.
const FUNCTIONS: [&str; 6] = ["acquire", "renew", "reissue", "release", "status", "held_names"];
const FACTS: &str = "select
    pg_catalog.current_setting('server_version') as version,
    pg_catalog.current_setting('server_version_num')::pg_catalog.int4 as number,
    current_user::pg_catalog.text as user_name,
    pg_catalog.current_setting('fsync') as fsync,
    pg_catalog.current_setting('full_page_writes') as full_page_writes,
    pg_catalog.current_setting('synchronous_commit') as synchronous_commit,
    pg_catalog.current_setting('synchronous_standby_names') as standbys,
    pg_catalog.pg_is_in_recovery() as is_replica,
    (select count(*) from pg_catalog.pg_stat_replication) as replicas,
    coalesce((select c.relpersistence::pg_catalog.text from pg_catalog.pg_class c
        where c.relname = 'lock'
            and c.relnamespace = pg_catalog.to_regnamespace('fenced_lock')), '') as persistence,
    coalesce((select pg_catalog.string_agg(p.proname, ' ') from pg_catalog.pg_proc p
        where p.pronamespace = pg_catalog.to_regnamespace('fenced_lock')
            and pg_catalog.has_schema_privilege(p.pronamespace, 'usage')), '') as functions";
const CLOCK: &str = "select
    pg_catalog.floor(extract(epoch from now))::pg_catalog.int8 as seconds,
    (extract(microseconds from now)::pg_catalog.int8 % 1000000)::pg_catalog.int8 as micros
    from (select pg_catalog.clock_timestamp() as now) as clock";
/// How often two sessions are compared. A pooler may give different ones to both now and then.
const SESSION_CHECKS: usize = 5;
/// How long a notification may take.
const NOTIFICATION: Duration = Duration::from_secs(2);

/// Connects, and runs all checks.
pub(super) async fn examine(url: &str, locks: &Locks) -> Result<Report, Failure> {
    run_checks(url, locks).await.map_err(|error| unavailable(locks, &error))
}

async fn run_checks(url: &str, locks: &Locks) -> Result<Report, sqlx::Error> {
    // PgBouncer rejects a connection that sets it.
    let options = PgConnectOptions::from_str(url)?.extra_float_digits(None);
    let mut session = Session::<sqlx::Postgres>::connect(&options).await?;
    let facts = session.row(FACTS).await?;
    let text = |column| facts.try_get::<String, _>(column);
    let functions = text("functions")?;
    let functions: Vec<_> = functions.split(' ').collect();
    let missing: Vec<_> =
        FUNCTIONS.into_iter().filter(|function| !functions.contains(function)).collect();
    let server = format!("postgresql {}", text("version")?);
    let mut findings = vec![
        version(&server, facts.try_get("number")?),
        database::tables(&missing, "migrations/postgres/lock"),
    ];
    findings.extend(durability(&facts)?);
    findings.push(replication(&facts)?);
    let clock = |row: &PgRow| Ok((row.try_get("seconds")?, row.try_get("micros")?));
    findings.push(session.clock(CLOCK, clock).await?);
    findings.push(database::locking(locks).await);
    findings.push(waking(session, options).await?);
    Ok(Report::from_findings(server, Some(text("user_name")?), findings))
}

fn version(server: &str, number: i32) -> Finding {
    const CHECK: &str = "version";
    if number >= OLDEST {
        return Finding::ok(CHECK, server);
    }
    Finding::bad(
        Severity::Unusable,
        CHECK,
        format!("{server} is older than 13"),
        "the functions of the locks can't be created there",
        Cure::advice("update PostgreSQL to 13 or newer"),
    )
}

/// Checks what a crash could lose.
fn durability(facts: &PgRow) -> Result<Vec<Finding>, sqlx::Error> {
    const CHECK: &str = "durability";
    let mut findings = Vec::new();
    for setting in ["fsync", "full_page_writes"] {
        if facts.try_get::<&str, _>(setting)? == "off" {
            let cure = Cure {
                commands: vec![
                    format!("alter system set {setting} = on"),
                    "select pg_reload_conf()".to_owned(),
                ],
                ..Cure::advice("write to the disk what is committed")
            };
            findings.push(Finding::bad(
                Severity::TokenLoss,
                CHECK,
                format!("{setting} is off"),
                "a power loss may lose grants, or the whole database: a counter that is restored \
                 from a backup issues its tokens again",
                cure,
            ));
        }
    }
    if facts.try_get::<&str, _>("persistence")? == "u" {
        findings.push(Finding::bad(
            Severity::TokenLoss,
            CHECK,
            "the table fenced_lock.lock is unlogged",
            "a crash empties it: a counter then starts at the client's clock, which is lower if a \
             clock went back, or if the counter was set by hand",
            Cure {
                commands: vec!["alter table fenced_lock.lock set logged".to_owned()],
                ..Cure::advice("keep the table on the disk")
            },
        ));
    }
    if findings.is_empty() {
        let setting: &str = facts.try_get("synchronous_commit")?;
        let found = match setting {
            "off" | "local" | "remote_write" => format!(
                "each grant is on the disk before its answer (synchronous_commit is {setting}, but \
                 the functions of the locks set it to on)"
            ),
            _ => "each grant is on the disk before its answer".to_owned(),
        };
        findings.push(Finding::ok(CHECK, found));
    }
    Ok(findings)
}

/// Checks the server's role, and whether a replica may replace it.
fn replication(facts: &PgRow) -> Result<Finding, sqlx::Error> {
    const CHECK: &str = "replication";
    if facts.try_get("is_replica")? {
        return Ok(Finding::bad(
            Severity::Unusable,
            CHECK,
            "a replica, or a server that is being restored",
            "no lock can be acquired here, because it accepts no writes",
            Cure::advice("name the primary"),
        ));
    }
    let (replicas, standbys): (i64, &str) =
        (facts.try_get("replicas")?, facts.try_get("standbys")?);
    Ok(match (replicas, standbys) {
        (0, _) => Finding::ok(CHECK, "a primary without replicas"),
        (_, "") => Finding::bad(
            Severity::TokenLoss,
            CHECK,
            format!("a primary with asynchronous replicas: {replicas}"),
            "replicas receive a grant after its answer: a failover to one that has not received it \
             issues the token a second time",
            Cure::advice(
                "name synchronous replicas in synchronous_standby_names, and promote no other; \
                 until then, the fence protects: the storage rejects the second holder of a token \
                 as a holder conflict",
            ),
        ),
        _ => Finding::ok(
            CHECK,
            format!("a primary with replicas: {replicas}; synchronous are: {standbys}"),
        ),
    })
}

/// Checks whether waiters are notified, which PgBouncer in transaction mode prevents.
async fn waking(
    mut session: Session<sqlx::Postgres>,
    options: PgConnectOptions,
) -> Result<Finding, sqlx::Error> {
    const CHECK: &str = "waking";
    let poll = |found| {
        Finding::bad(
            Severity::Warning,
            CHECK,
            found,
            "no lock and no token, but waiting clients ask about once a second whether a lock was \
             freed",
            Cure::advice("name PostgreSQL itself, or a pooler in session mode"),
        )
    };
    let mut other = Session::<sqlx::Postgres>::connect(&options).await?;
    for _ in 0..SESSION_CHECKS {
        let sql = "select pg_catalog.pg_backend_pid() as pid";
        let own: i32 = session.row(sql).await?.try_get("pid")?;
        if own == other.row(sql).await?.try_get::<i32, _>("pid")? {
            let found = "connections share sessions, as those of PgBouncer in transaction mode";
            return Ok(poll(found.to_owned()));
        }
    }
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let channel = format!("fenced_lock_doctor_{}", std::process::id());
    let mut listener = limited(PgListener::connect_with(&pool)).await?;
    limited(listener.listen(&channel)).await?;
    session.row(&format!("select pg_catalog.pg_notify('{channel}', '')")).await?;
    Ok(match timeout(NOTIFICATION, listener.recv()).await {
        Ok(Ok(_)) => Finding::ok(CHECK, "notifications arrive"),
        Ok(Err(error)) => poll(format!("notifications can't be received: {error}")),
        Err(_) => poll(format!("no notification arrives within {} s", NOTIFICATION.as_secs())),
    })
}

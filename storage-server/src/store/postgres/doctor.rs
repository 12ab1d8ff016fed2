//! Whether a PostgreSQL can lose an acknowledged fence.

mod patroni;
mod replication;

use sqlx::{ConnectOptions, Executor, PgConnection, Row, postgres::PgConnectOptions};
use tokio::time::timeout;

pub(crate) use self::patroni::PatroniUrl;
use self::{patroni::Patroni, replication::Replication};
use super::{hosts::Hosts, instance::Newest, primary::find_primary, settings::Settings};
use crate::store::{
    doctor::{Examination, Finding, Verdict},
    error::{ANSWER_TIMEOUT, OpenError, no_answer},
};

/// How often two sessions are compared. A pooler may give different ones to both now and then.
const SESSION_CHECKS: usize = 5;

const UNSEEN: &str = "whether the disk keeps what was synced; standbys that are not connected now; what \
                      else may promote a standby; a backup that was restored";
const POOLER: &str = "A pooler in transaction mode gives a server's statements to different sessions, and \
                      drops what it has set for its own, such as synchronous_commit. Connect without it, \
                      or in session mode.";

/// Examines the primary.
pub(in crate::store) async fn examine(
    url: &str,
    patroni: Option<&PatroniUrl>,
) -> Result<Examination, OpenError> {
    let hosts = Hosts::parse(url)?.application_name("storage-server doctor");
    let primary = find_primary(&hosts, &Newest::default()).await?;
    let database = hosts.database();
    let failed = |source| OpenError::Connect { database: database.clone(), source };
    let examined = timeout(ANSWER_TIMEOUT, ask(hosts.options(primary), patroni)).await;
    let findings = match examined.unwrap_or_else(|_| Err(no_answer(ANSWER_TIMEOUT))) {
        Ok(findings) => findings,
        Err(error) if is_rejected_setting(&error) => {
            vec![pooler(Verdict::Wrong, error.to_string())]
        }
        Err(error) => return Err(failed(error)),
    };
    Ok(Examination { database, findings, unseen: UNSEEN })
}

async fn ask(
    options: &PgConnectOptions,
    patroni: Option<&PatroniUrl>,
) -> Result<Vec<Finding>, sqlx::Error> {
    let (mut session, mut other) = (options.connect().await?, options.connect().await?);
    check(&mut session, &mut other, patroni).await
}

/// Runs all checks. Each statement is one message, because a pooler may give the next one to another session.
async fn check(
    session: &mut PgConnection,
    other: &mut PgConnection,
    patroni: Option<&PatroniUrl>,
) -> Result<Vec<Finding>, sqlx::Error> {
    let settings = Settings::ask(session).await?;
    let mut findings: Vec<_> = settings
        .needed()
        .into_iter()
        .map(|needed| Finding {
            check: needed.name,
            verdict: Verdict::wrong_if(needed.reason.is_some()),
            found: needed.reason.unwrap_or(needed.found),
            why: "No server starts with another.",
        })
        .collect();
    findings.push(Finding {
        check: "full_page_writes",
        verdict: Verdict::wrong_if(settings.full_page_writes != "on"),
        found: settings.full_page_writes,
        why: "Without it, a crash may leave torn pages, unless the file system prevents them.",
    });
    findings.push(table(session).await?);
    findings.push(match share_a_session(session, other).await? {
        true => pooler(Verdict::Wrong, "two connections share a session".to_owned()),
        false => pooler(Verdict::Ok, "each connection has a session".to_owned()),
    });
    let replication = Replication::ask(session).await?;
    let patroni = match patroni {
        Some(url) => Patroni::ask(url).await,
        None if replication.has_patroni => Patroni::Seen,
        None => Patroni::NotSeen,
    };
    findings.push(replication.finding(&patroni));
    findings.extend(patroni.finding());
    Ok(findings)
}

fn pooler(verdict: Verdict, found: String) -> Finding {
    Finding { check: "pooler", verdict, found, why: POOLER }
}

/// Whether a pooler rejects what a server sets for its sessions.
fn is_rejected_setting(error: &sqlx::Error) -> bool {
    let message = error.as_database_error().map(|error| error.message());
    message.is_some_and(|message| message.contains("unsupported startup parameter"))
}

async fn share_a_session(
    session: &mut PgConnection,
    other: &mut PgConnection,
) -> Result<bool, sqlx::Error> {
    for _ in 0..SESSION_CHECKS {
        if process(session).await? == process(other).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The process of PostgreSQL that serves a session.
async fn process(session: &mut PgConnection) -> Result<i32, sqlx::Error> {
    session.fetch_one(sqlx::raw_sql("select pg_backend_pid()")).await?.try_get(0)
}

async fn table(session: &mut PgConnection) -> Result<Finding, sqlx::Error> {
    let persistence = "select relpersistence::text from pg_class
        where oid = to_regclass('storage.resource')";
    let row = session.fetch_optional(sqlx::raw_sql(persistence)).await?;
    let persistence = row.map(|row| row.try_get::<String, _>(0)).transpose()?;
    Ok(Finding {
        check: "table",
        verdict: Verdict::wrong_if(persistence.as_deref().is_some_and(|it| it != "p")),
        found: match persistence.as_deref() {
            None => "not created yet",
            Some("p") => "logged",
            Some(_) => "unlogged",
        }
        .to_owned(),
        why: "A crash empties an unlogged table, and standbys don't have it: alter table \
              storage.resource set logged.",
    })
}

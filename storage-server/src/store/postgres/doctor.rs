//! Whether a PostgreSQL can lose an acknowledged fence.

use doctor::{Check, Report, Verdict, postgres};
use postgres_primary::Newest;
use sqlx::{ConnectOptions, postgres::PgConnectOptions};
use tokio::time::timeout;

use super::{
    primary::find_primary,
    session::{plain_hosts, session_hosts},
    settings::Settings,
};
use crate::store::error::{ANSWER_TIMEOUT, OpenError, no_answer};

const NAME: &str = "storage-server doctor";

/// Examines the primary.
pub(in crate::store) async fn examine(
    url: &str,
    patroni: Option<&postgres::PatroniUrl>,
) -> Result<Report, OpenError> {
    let hosts = plain_hosts(url)?.application_name(NAME);
    let primary = find_primary(&hosts, &Newest::default()).await?;
    let database = hosts.database();
    let failed = |source| OpenError::Connect { database: database.clone(), source };
    let examined = postgres::examine(hosts.options(primary)).await;
    let mut report = examined.map_err(failed)?;
    match patroni {
        Some(url) => postgres::ask_patroni(&mut report, url).await,
        None => name_the_option(&mut report.checks),
    }
    report.system = format!("{database}, {}", report.system);
    report.checks = report.checks.into_iter().map(as_of_a_server).collect();
    let hosts = session_hosts(url)?.application_name(NAME);
    report.checks.extend(of_own_session(hosts.options(primary)).await.map_err(failed)?);
    Ok(report)
}

/// Where a Patroni was seen, this command can ask it.
fn name_the_option(checks: &mut [Check]) {
    for check in checks.iter_mut().filter(|check| check.name == "patroni") {
        check.cure = Some("give the REST address of a member: --patroni http://HOST:8008".into());
    }
}

/// The sessions of a server set what they need, and the next check shows that they have it.
fn as_of_a_server(check: Check) -> Check {
    match &*check.name {
        "synchronous_commit" | "stored_synchronous_commit" => check.lowered(
            "fences are safe, because each session of a server sets it to on; but what other clients commit may be lost",
        ),
        _ => check,
    }
}

/// What a server needs at its start, in a session like its own.
async fn of_own_session(options: &PgConnectOptions) -> Result<Vec<Check>, sqlx::Error> {
    let asked =
        timeout(ANSWER_TIMEOUT, async { Settings::ask(&mut options.connect().await?).await });
    match asked.await.unwrap_or_else(|_| Err(no_answer(ANSWER_TIMEOUT))) {
        Ok(settings) => Ok(settings
            .own()
            .map(|needed| match needed.reason {
                None => Check::ok(needed.name, needed.found),
                Some(reason) => unfit(needed.name, needed.found, reason),
            })
            .into()),
        Err(error) if is_rejected_setting(&error) => Ok(vec![unfit(
            "session",
            error.to_string(),
            "a pooler rejects what a server sets for its sessions".to_owned(),
        )]),
        Err(error) => Err(error),
    }
}

fn unfit(name: &'static str, found: String, why: String) -> Check {
    let cure = "no server starts with it: create the database anew, or connect without a pooler";
    Check::bad(Verdict::Unfit, name, found, why, cure)
}

/// Whether a pooler rejects what a server sets for its sessions.
fn is_rejected_setting(error: &sqlx::Error) -> bool {
    let message = error.as_database_error().map(|error| error.message());
    message.is_some_and(|message| message.contains("unsupported startup parameter"))
}

//! Asking all hosts which of them is the primary.

use std::{io, time::Duration};

use sqlx::{ConnectOptions, PgConnection, error::DatabaseError, postgres::PgConnectOptions};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    hosts::Hosts,
    instance::{Instance, Newest, NoPrimary, Role},
};

/// How long a host may take to say what it is, for a program that follows the primary.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How long the other hosts may take at least, once a primary has answered.
const GRACE: Duration = Duration::from_millis(100);

/// What each host has said last, or why it said nothing.
pub type Seen = Vec<Result<Instance, String>>;

/// No host can be used. It displays as the reason, with what each host has said.
#[derive(Debug, thiserror::Error)]
pub enum NotFound {
    /// No host has answered as the newest primary, or more than one may be it.
    #[error("{0}")]
    NoPrimary(String),
    /// Each host has rejected the user, the password or the database, or has no certificate that is trusted.
    /// One host alone doesn't speak for the others.
    #[error(transparent)]
    Denied(sqlx::Error),
}

/// The primary that was found.
#[derive(Debug)]
pub struct Found {
    /// Its place among the hosts.
    pub host: usize,
    /// The connection over which it has answered, and its timeline. A single host is not asked.
    pub asked: Option<(PgConnection, i64)>,
}

/// Asks all hosts at once, and returns the primary.
///
/// Each host may take as long as the limit. The first time, all hosts are waited for: an old primary may
/// answer first, and nothing is known of a newer one. Later, the others get as long again as the primary
/// took, and 100 ms at least. So a host that is down delays nothing for long.
///
/// # Errors
/// [`NotFound`] if no host is the newest primary, or more than one may be.
pub async fn find_primary(
    hosts: &Hosts,
    newest: &Newest,
    limit: Duration,
) -> Result<Found, NotFound> {
    if !hosts.has_several() {
        return Ok(Found { host: 0, asked: None });
    }
    // 1. Ask all.
    let begun = Instant::now();
    let mut asking = JoinSet::new();
    let (mut seen, mut connections, mut denials) = (Seen::new(), Vec::new(), Vec::new());
    for (host, options) in hosts.iter().enumerate() {
        let options = options.clone();
        asking.spawn(async move {
            let mut connection = None;
            let answer = ask_in_time(&mut connection, &options, limit).await;
            (host, answer, connection)
        });
        seen.push(Err("no answer yet".to_owned()));
        connections.push(None);
    }
    // 2. Wait for a primary, and then a little for the others: each `ask` ends by itself. Without a known
    // timeline, wait for all.
    let mut end = None;
    loop {
        let next = match end {
            Some(end) => timeout_at(end, asking.join_next()).await,
            None => Ok(asking.join_next().await),
        };
        let (host, answer, connection) = match next {
            Ok(Some(asked)) => asked.expect("asking does not panic"),
            Ok(None) => break,
            Err(_) if newest.choose(&seen).is_ok() => break,
            Err(_) => {
                end = None;
                continue;
            }
        };
        let is_primary = answer.as_ref().is_ok_and(|it| it.role == Role::Primary);
        if is_primary && newest.timeline().is_some() {
            end = end.or(Some(Instant::now() + begun.elapsed().max(GRACE)));
        }
        connections[host] = connection;
        seen[host] = answer.map_err(|error| {
            let reason = error.to_string();
            denials.extend(Some(error).filter(denies_the_session));
            reason
        });
    }
    // 3. The answers of the others may show that it was replaced.
    match newest.choose(&seen) {
        Ok(host) => {
            let connection = connections.swap_remove(host);
            let timeline = seen[host].as_ref().map(|primary| primary.timeline);
            Ok(Found { host, asked: connection.zip(timeline.ok()) })
        }
        Err(_) if denials.len() == seen.len() => Err(NotFound::Denied(denials.swap_remove(0))),
        Err(error) => Err(NotFound::NoPrimary(describe(error, hosts, newest, &seen))),
    }
}

/// Whether the user, the password or the database is wrong, or the certificate.
fn denies_the_session(error: &sqlx::Error) -> bool {
    let is_untrusted = match error {
        sqlx::Error::Tls(_) => true,
        sqlx::Error::Io(error) => error.kind() == io::ErrorKind::InvalidData,
        _ => false,
    };
    let code = error.as_database_error().and_then(DatabaseError::code);
    is_untrusted || code.is_some_and(|code| code.starts_with("28") || code == "3D000")
}

/// Asks a host over the connection, which is made if there is none, and kept if there is an answer.
///
/// # Errors
/// The reason why there is no answer within 2 seconds.
pub async fn ask(
    connection: &mut Option<PgConnection>,
    options: &PgConnectOptions,
) -> Result<Instance, String> {
    ask_in_time(connection, options, ANSWER_LIMIT).await.map_err(|error| error.to_string())
}

async fn ask_in_time(
    connection: &mut Option<PgConnection>,
    options: &PgConnectOptions,
    limit: Duration,
) -> Result<Instance, sqlx::Error> {
    let asked = timeout(limit, async {
        let mut kept = match connection.take() {
            Some(kept) => kept,
            None => options.connect().await?,
        };
        let instance = Instance::ask(&mut kept).await?;
        *connection = Some(kept);
        Ok::<_, sqlx::Error>(instance)
    });
    asked.await.unwrap_or_else(|_| {
        let reason = format!("no answer within {limit:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, reason).into())
    })
}

/// Describes why no host was chosen, with what each has said.
pub fn describe(error: NoPrimary, hosts: &Hosts, newest: &Newest, seen: &Seen) -> String {
    let each = seen.iter().enumerate().map(|(host, seen)| match seen {
        Ok(instance) => format!("{}: {instance}", hosts.host(host)),
        Err(reason) => format!("{}: {reason}", hosts.host(host)),
    });
    let each = each.collect::<Vec<_>>().join("; ");
    let given_up = match (error, newest.timeline()) {
        (NoPrimary::None, Some(timeline)) => {
            format!(". Timeline {timeline} has been seen: if it was given up, restart this program")
        }
        _ => String::new(),
    };
    format!("{error} ({each}){given_up}")
}

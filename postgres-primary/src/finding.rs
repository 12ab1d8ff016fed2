//! Asking all hosts which of them is the primary.

use std::time::Duration;

use sqlx::{ConnectOptions, PgConnection, postgres::PgConnectOptions};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    hosts::Hosts,
    instance::{Instance, Newest, NoPrimary, Role},
};

/// How long a host may take to say what it is.
const LIMIT: Duration = Duration::from_secs(2);
/// How long the other hosts may take at least, once a primary has answered.
const GRACE: Duration = Duration::from_millis(100);

/// What each host has said last, or why it said nothing.
pub type Seen = Vec<Result<Instance, String>>;

/// No host can be used. It displays as the reason, with what each host has said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(pub String);

/// Asks all hosts at once. Returns the place of the primary, and the connection over which it has
/// answered. A single host is not asked.
///
/// The first time, all hosts are waited for, up to 2 seconds: an old primary may answer first, and nothing
/// is known of a newer one. Later, the others get as long again as the primary took, and 100 ms at least. So
/// a host that is down delays nothing for long.
///
/// # Errors
/// [`NotFound`] if no host is the newest primary, or more than one may be.
pub async fn find_primary(
    hosts: &Hosts,
    newest: &Newest,
) -> Result<(usize, Option<PgConnection>), NotFound> {
    if !hosts.has_several() {
        return Ok((0, None));
    }
    // 1. Ask all.
    let begun = Instant::now();
    let mut asking = JoinSet::new();
    let (mut seen, mut connections) = (Seen::new(), Vec::new());
    for (host, options) in hosts.iter().enumerate() {
        let options = options.clone();
        asking.spawn(async move {
            let mut connection = None;
            let answer = ask(&mut connection, &options).await;
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
        (seen[host], connections[host]) = (answer, connection);
    }
    // 3. The answers of the others may show that it was replaced.
    match newest.choose(&seen) {
        Ok(primary) => Ok((primary, connections.swap_remove(primary))),
        Err(error) => Err(NotFound(describe(error, hosts, newest, &seen))),
    }
}

/// Asks a host over the connection, which is made if there is none, and kept if there is an answer.
///
/// # Errors
/// The reason why there is no answer within 2 seconds.
pub async fn ask(
    connection: &mut Option<PgConnection>,
    options: &PgConnectOptions,
) -> Result<Instance, String> {
    let asked = timeout(LIMIT, async {
        let mut kept = match connection.take() {
            Some(kept) => kept,
            None => options.connect().await?,
        };
        let instance = Instance::ask(&mut kept).await?;
        *connection = Some(kept);
        Ok::<_, sqlx::Error>(instance)
    });
    match asked.await {
        Ok(instance) => instance.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", LIMIT.as_secs())),
    }
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

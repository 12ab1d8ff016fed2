//! Asking all hosts which of them is the primary.

use std::time::Duration;

use sqlx::{ConnectOptions, PgConnection, postgres::PgConnectOptions};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    hosts::Hosts,
    instance::{Instance, Newest, NoPrimary},
};

/// How long a host may take to say what it is.
const LIMIT: Duration = Duration::from_secs(2);

/// What each host has said last, or why it said nothing.
pub type Seen = Vec<Result<Instance, String>>;

/// No host can be used. It displays as the reason, with what each host has said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(pub String);

/// Asks all hosts at once. Returns the place of the primary, and the connection over which it has
/// answered. A single host is not asked.
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
    let mut asking = JoinSet::new();
    for (host, options) in hosts.iter().enumerate() {
        let options = options.clone();
        asking.spawn(async move {
            let mut connection = None;
            let seen = ask(&mut connection, &options).await;
            (host, seen, connection)
        });
    }
    let mut answers = asking.join_all().await;
    answers.sort_by_key(|(host, ..)| *host);
    let (seen, mut connections): (Seen, Vec<_>) =
        answers.into_iter().map(|(_, seen, connection)| (seen, connection)).unzip();
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

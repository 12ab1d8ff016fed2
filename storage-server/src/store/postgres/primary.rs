//! Finding the primary among several hosts, and following it after a failover.
//!
//! A task for each host asks it again and again, over a connection that it keeps. So a host that
//! hangs, or is cut off, holds up nobody but its own task.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sqlx::{ConnectOptions, PgConnection, Postgres};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    hosts::Hosts,
    instance::{Instance, Newest, NoPrimary},
};
use crate::store::{error::OpenError, kept_pool::KeptPool};

/// How long a host may take to say what it is.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a host is asked.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What each host has said last, or why it said nothing.
type Seen = Vec<Result<Instance, String>>;

/// Asks all hosts at once, and returns the place of the primary. One host is not asked.
pub(super) async fn find_primary(hosts: &Hosts, newest: &Newest) -> Result<usize, OpenError> {
    if !hosts.has_several() {
        return Ok(0);
    }
    let mut looks = JoinSet::new();
    for (host, options) in hosts.iter().enumerate() {
        let options = options.clone();
        looks.spawn(async move { (host, look(&mut None, &options).await) });
    }
    let mut seen = looks.join_all().await;
    seen.sort_by_key(|(host, _)| *host);
    let seen: Seen = seen.into_iter().map(|(_, seen)| seen).collect();
    newest.choose(&seen).map_err(|error| OpenError::NoPrimary {
        database: hosts.database(),
        reason: describe(error, hosts, &seen),
    })
}

/// Asks a host over the connection, which is made if there is none, and kept if there is an answer.
async fn look(
    connection: &mut Option<PgConnection>,
    options: &sqlx::postgres::PgConnectOptions,
) -> Result<Instance, String> {
    let asked = timeout(LOOK_TIMEOUT, async {
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
        Err(_) => Err(format!("no answer within {} s", LOOK_TIMEOUT.as_secs())),
    }
}

fn describe(error: NoPrimary, hosts: &Hosts, seen: &Seen) -> String {
    let each = seen.iter().enumerate().map(|(host, seen)| match seen {
        Ok(instance) => format!("{}: {instance}", hosts.host(host)),
        Err(reason) => format!("{}: {reason}", hosts.host(host)),
    });
    format!("{error} ({})", each.collect::<Vec<_>>().join("; "))
}

/// Follows the primary, until it is dropped.
#[derive(Debug)]
pub(super) struct Following {
    refusal: Arc<Mutex<Option<String>>>,
    /// Changes with the primary.
    changes: watch::Receiver<()>,
    _tasks: JoinSet<()>,
}

impl Following {
    /// Lets the pools lead to the primary, which is `first` now.
    pub(super) fn start(
        hosts: Hosts,
        first: usize,
        newest: Newest,
        pools: Vec<Arc<KeptPool<Postgres>>>,
    ) -> Self {
        let refusal = Arc::default();
        let (changed, changes) = watch::channel(());
        let mut tasks = JoinSet::new();
        if hosts.has_several() {
            let unknown = hosts.iter().map(|_| Err("not asked yet".to_owned())).collect();
            let (seen, all_seen) = watch::channel::<Seen>(unknown);
            for (host, options) in hosts.iter().enumerate() {
                tasks.spawn(ask_again_and_again(host, options.clone(), seen.clone()));
            }
            let refusal = Arc::clone(&refusal);
            tasks.spawn(follow(hosts, first, newest, pools, all_seen, refusal, changed));
        }
        Self { refusal, changes, _tasks: tasks }
    }

    /// Why no host may be used now, if so.
    pub(super) fn refusal(&self) -> Result<(), sqlx::Error> {
        match &*self.refusal.lock().expect("no panic while it is held") {
            Some(reason) => Err(sqlx::Error::Configuration(reason.as_str().into())),
            None => Ok(()),
        }
    }

    /// Notes the primary of this moment.
    pub(super) fn current(&self) -> Current {
        let mut changes = self.changes.clone();
        changes.mark_unchanged();
        Current(changes)
    }
}

/// The primary of a moment.
pub(super) struct Current(watch::Receiver<()>);

impl Current {
    /// Whether it is replaced or refused by now.
    pub(super) fn is_replaced(&self) -> bool {
        // An error: nobody follows.
        self.0.has_changed().unwrap_or(false)
    }

    /// Waits until it is replaced or refused.
    pub(super) async fn replaced(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody follows.
            std::future::pending().await
        }
    }
}

async fn ask_again_and_again(
    host: usize,
    options: sqlx::postgres::PgConnectOptions,
    seen: watch::Sender<Seen>,
) {
    let mut connection = None;
    loop {
        let now = look(&mut connection, &options).await;
        seen.send_if_modified(|seen| {
            let is_new = seen[host] != now;
            seen[host] = now;
            is_new
        });
        sleep(LOOK_INTERVAL).await;
    }
}

async fn follow(
    hosts: Hosts,
    first: usize,
    newest: Newest,
    pools: Vec<Arc<KeptPool<Postgres>>>,
    mut seen: watch::Receiver<Seen>,
    refusal: Arc<Mutex<Option<String>>>,
    changed: watch::Sender<()>,
) {
    let (mut current, mut timeline) = (first, newest.timeline());
    while seen.changed().await.is_ok() {
        let seen = seen.borrow_and_update().clone();
        let reason = match newest.choose(&seen) {
            Ok(primary) => {
                let new_timeline = seen[primary].as_ref().map(|instance| instance.timeline).ok();
                if (primary, new_timeline) != (current, timeline) {
                    (current, timeline) = (primary, new_timeline);
                    for pool in &pools {
                        pool.connect_to(hosts.options(primary).clone());
                    }
                    changed.send_replace(());
                    tracing::warn!(timeline, "the primary is now {}", hosts.host(primary));
                }
                None
            }
            // One that has not answered may still be the primary, and only slow. Its sessions show that.
            // But it is old if another host has shown a newer timeline.
            Err(_) if seen[current].is_err() && newest.timeline() == timeline => continue,
            Err(error) => Some(describe(error, &hosts, &seen)),
        };
        let mut refusal = refusal.lock().expect("no panic while it is held");
        if *refusal != reason {
            if let Some(reason) = &reason {
                tracing::error!(database = hosts.database(), "{reason}");
                // What is under way may be a commit on an old primary.
                changed.send_replace(());
            }
            *refusal = reason;
        }
    }
}

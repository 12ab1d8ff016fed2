//! Finding the primary among several hosts, and following it after a failover.
//!
//! A task for each host asks it again and again, over a connection that it keeps. So a host that
//! hangs, or is cut off, holds up nobody but its own task.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use postgres_primary::{ANSWER_LIMIT, Hosts, Newest, NoPrimary, NotFound, Seen, ask, describe};
use sqlx::Postgres;
use tokio::{sync::watch, task::JoinSet, time::sleep};

use crate::store::{error::OpenError, kept_pool::KeptPool};

/// How often a host is asked.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Asks all hosts at once, and returns the place of the primary. One host is not asked.
pub(super) async fn find_primary(hosts: &Hosts, newest: &Newest) -> Result<usize, OpenError> {
    let found = postgres_primary::find_primary(hosts, newest, ANSWER_LIMIT).await;
    let database = || hosts.database();
    found.map(|found| found.host).map_err(|error| match error {
        NotFound::NoPrimary(reason) => OpenError::NoPrimary { database: database(), reason },
        NotFound::Denied(source) => OpenError::Connect { database: database(), source },
    })
}

/// Follows the primary, until it is dropped.
#[derive(Debug)]
pub(super) struct Following {
    rejection: Arc<Mutex<Option<String>>>,
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
        let rejection = Arc::default();
        let (changed, changes) = watch::channel(());
        let mut tasks = JoinSet::new();
        if hosts.has_several() {
            let unknown = hosts.iter().map(|_| Err("not asked yet".to_owned())).collect();
            let (seen, all_seen) = watch::channel::<Seen>(unknown);
            for (host, options) in hosts.iter().enumerate() {
                tasks.spawn(ask_again_and_again(host, options.clone(), seen.clone()));
            }
            let rejection = Arc::clone(&rejection);
            tasks.spawn(follow(hosts, first, newest, pools, all_seen, rejection, changed));
        }
        Self { rejection, changes, _tasks: tasks }
    }

    /// Why no host may be used now, if so.
    pub(super) fn rejection(&self) -> Result<(), sqlx::Error> {
        match &*self.rejection.lock().expect("no panic while it is held") {
            Some(reason) => Err(sqlx::Error::Configuration(reason.as_str().into())),
            None => Ok(()),
        }
    }

    /// Notes the primary of this moment.
    pub(super) fn current(&self) -> Current {
        let mut changes = self.changes.clone();
        changes.mark_unchanged();
        Current { changes, noted_at: Instant::now() }
    }
}

/// The primary of a moment.
pub(super) struct Current {
    changes: watch::Receiver<()>,
    pub(super) noted_at: Instant,
}

impl Current {
    /// Whether it is replaced or rejected by now.
    pub(super) fn is_replaced(&self) -> bool {
        // An error: nobody follows.
        self.changes.has_changed().unwrap_or(false)
    }

    /// Waits until it is replaced or rejected.
    pub(super) async fn replaced(&mut self) {
        if self.changes.changed().await.is_err() {
            // Nobody follows.
            std::future::pending().await
        }
    }
}

/// The primary that the pools lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Followed {
    host: usize,
    timeline: Option<i64>,
    /// When it was started, as it has said last.
    started: Option<String>,
}

impl Followed {
    /// The primary to follow, if this host is seen as primary now.
    ///
    /// # Errors
    /// If another server is primary on the timeline of the one that was followed. Both were promoted to
    /// it, though they were never seen at the same time.
    fn next(&self, primary: usize, seen: &Seen) -> Result<Self, NoPrimary> {
        let instance = seen[primary].as_ref().expect("a primary has answered");
        let is_same_server = self.started.as_ref().is_none_or(|it| *it == instance.started);
        if primary != self.host && self.timeline == Some(instance.timeline) && !is_same_server {
            return Err(NoPrimary::Rival);
        }
        Ok(Self {
            host: primary,
            timeline: Some(instance.timeline),
            started: Some(instance.started.clone()),
        })
    }
}

async fn ask_again_and_again(
    host: usize,
    options: sqlx::postgres::PgConnectOptions,
    seen: watch::Sender<Seen>,
) {
    let mut connection = None;
    loop {
        let now = ask(&mut connection, &options).await;
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
    rejection: Arc<Mutex<Option<String>>>,
    changed: watch::Sender<()>,
) {
    let mut followed = Followed { host: first, timeline: newest.timeline(), started: None };
    while seen.changed().await.is_ok() {
        let seen = seen.borrow_and_update().clone();
        let reason = match newest.choose(&seen).and_then(|primary| followed.next(primary, &seen)) {
            Ok(next) => {
                let is_other = (next.host, next.timeline) != (followed.host, followed.timeline);
                followed = next;
                if is_other {
                    let Followed { host: primary, timeline, .. } = followed;
                    for pool in &pools {
                        pool.connect_to(hosts.options(primary).clone());
                    }
                    changed.send_replace(());
                    tracing::warn!(timeline, "the primary is now {}", hosts.host(primary));
                }
                None
            }
            // One that has not answered may still be the primary, and only slow. If it is gone, its
            // sessions fail.
            // But it is old if another host has shown a newer timeline.
            Err(error)
                if error != NoPrimary::Rival
                    && seen[followed.host].is_err()
                    && newest.timeline() == followed.timeline =>
            {
                continue;
            }
            Err(error) => Some(describe(error, &hosts, &newest, &seen)),
        };
        let mut rejection = rejection.lock().expect("no panic while it is held");
        if *rejection != reason {
            if let Some(reason) = &reason {
                tracing::error!(database = hosts.database(), "{reason}");
                // What is under way may be a commit on an old primary.
                changed.send_replace(());
            }
            *rejection = reason;
        }
    }
}

#[cfg(test)]
mod tests {
    use postgres_primary::{Instance, Role};

    use super::*;

    fn primary(timeline: i64, started: &str) -> Result<Instance, String> {
        Ok(Instance { system: 7, timeline, role: Role::Primary, started: started.to_owned() })
    }

    #[test]
    fn primary_on_the_timeline_of_the_former_one_is_not_followed() {
        let down = || Err("no answer".to_owned());
        let first = Followed { host: 0, timeline: Some(1), started: None };
        let followed = first.next(0, &vec![primary(2, "a"), down()]).unwrap();
        // A was promoted to timeline 2, and is gone. B was promoted to the same one afterwards.
        assert_eq!(followed.next(1, &vec![down(), primary(2, "b")]), Err(NoPrimary::Rival));
        // The controls: A itself, also after a restart; another address of A; and a newer primary.
        for (place, seen) in [
            (0, vec![primary(2, "a"), down()]),
            (0, vec![primary(2, "later"), down()]),
            (1, vec![down(), primary(2, "a")]),
            (1, vec![down(), primary(3, "b")]),
        ] {
            assert_eq!(followed.next(place, &seen).map(|next| next.host), Ok(place));
        }
    }
}

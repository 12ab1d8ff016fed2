//! The lease under which the command of `run` works: that of this process, or of an outer `run`.

use std::{sync::Arc, time::Duration};

use fence::ResourceName;
use lock_client::{Lease, Locks, Moment, RenewError};
use tokio::{sync::watch, task::JoinHandle, time::sleep};

use super::lost_lease::LeaseWatch;
use crate::environment::LeaseRecord;

/// How often the lease of an outer `run` is looked at until its deadline.
const LOOKS: u32 = 10;
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// A lease, and the watch that decides what happens to the child when it is lost.
#[derive(Debug)]
pub(super) struct Guard<'a> {
    pub(super) lease: GuardedLease<'a>,
    pub(super) watch: LeaseWatch,
}

/// The lease under which a command works.
#[derive(Debug)]
pub(super) enum GuardedLease<'a> {
    /// This process renews it.
    Own(&'a Lease),
    /// An outer `run` renews it.
    Outer(ObservedLease),
}

impl GuardedLease<'_> {
    pub(super) fn name(&self) -> &ResourceName {
        match self {
            Self::Own(lease) => lease.name(),
            Self::Outer(lease) => &lease.observation.record.resource,
        }
    }

    /// The time until its deadline; zero if it is lost.
    pub(super) fn remaining(&self) -> Duration {
        match self {
            Self::Own(lease) => lease.remaining(),
            Self::Outer(lease) => lease.observation.remaining(),
        }
    }

    /// Waits until the lease is lost.
    pub(super) async fn lost(&self) {
        match self {
            Self::Own(lease) => lease.lost().await,
            Self::Outer(lease) => {
                // The sender lives as long as this lease.
                let _ = lease.observation.until.subscribe().wait_for(Option::is_none).await;
            }
        }
    }

    /// Finds whether the lease has ended, though nobody has noticed it. If the lock service doesn't
    /// answer, the deadline decides.
    pub(super) async fn has_ended(&self) -> bool {
        match self {
            // With Redlock, a status would not show it: a node that does not answer may have the
            // lock.
            Self::Own(lease) if !lease.remaining().is_zero() => {
                matches!(lease.renew().await, Err(RenewError::Lost(_)))
            }
            Self::Own(_) => true,
            Self::Outer(lease) => {
                lease.observation.look().await;
                lease.observation.remaining().is_zero()
            }
        }
    }
}

/// The lease of an outer `run`, as the lock service shows it from time to time.
#[derive(Debug)]
pub(super) struct ObservedLease {
    observation: Arc<Observation>,
    observer: JoinHandle<()>,
}

#[derive(Debug)]
struct Observation {
    locks: Locks,
    record: LeaseRecord,
    /// The deadline by the last answer; `None` once another client holds the lock, or nobody.
    until: watch::Sender<Option<Moment>>,
}

impl ObservedLease {
    /// Observes a lease that ends at a moment, unless the outer `run` renews it.
    pub(super) fn start(locks: Locks, record: LeaseRecord, until: Moment) -> Self {
        let until = watch::Sender::new(Some(until));
        let observation = Arc::new(Observation { locks, record, until });
        let observer = tokio::spawn(Arc::clone(&observation).look_until_lost());
        Self { observation, observer }
    }
}

impl Drop for ObservedLease {
    fn drop(&mut self) {
        self.observer.abort();
    }
}

impl Observation {
    fn remaining(&self) -> Duration {
        self.until.borrow().map_or(Duration::ZERO, Moment::remaining)
    }

    async fn look_until_lost(self: Arc<Self>) {
        while self.until.borrow().is_some() {
            sleep((self.remaining() / LOOKS).clamp(MIN_PAUSE, MAX_PAUSE)).await;
            self.look().await;
        }
    }

    /// Asks until when the lease holds the lock. Without an answer, the last deadline counts.
    async fn look(&self) {
        let asked = Moment::now();
        if let Ok(status) = self.locks.status(&self.record.resource).await {
            let until = self.record.held_until(asked, status.held.as_ref());
            // A lease that was lost is not held again.
            self.until.send_if_modified(|last| {
                last.is_some() && {
                    *last = until;
                    true
                }
            });
        }
    }
}

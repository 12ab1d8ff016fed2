//! The lease under which the command of `run` works: that of this process, or of an outer `run`.

use std::time::Duration;

use fence::ResourceName;
use lock_client::{Lease, Locks, RenewError};
use tokio::{task::JoinHandle, time::sleep};

use super::{
    deadline::{DeadlineFile, OuterDeadline},
    lost_lease::{Action, LeaseWatch},
};
use crate::environment::LeaseRecord;

/// How often an inner `run` asks whether its outer one still has the lock.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// A lease, and the watch that decides what happens to the child when it is lost.
#[derive(Debug)]
pub(super) struct Guard<'a> {
    pub(super) lease: GuardedLease<'a>,
    pub(super) watch: LeaseWatch,
}

impl Guard<'_> {
    /// Looks at the lease, and returns what to do to the child now. Call it until there is nothing.
    pub(super) fn next_action(&mut self) -> Option<Action> {
        self.watch.next_action(self.lease.look())
    }
}

/// The lease under which a command works.
#[derive(Debug)]
pub(super) enum GuardedLease<'a> {
    /// This process renews it, and writes its deadline to the file.
    Own(&'a Lease, Option<DeadlineFile>),
    /// An outer `run` renews it.
    Outer(ObservedLease),
}

impl GuardedLease<'_> {
    pub(super) fn name(&self) -> &ResourceName {
        match self {
            Self::Own(lease, _) => lease.name(),
            Self::Outer(lease) => &lease.record.resource,
        }
    }

    /// The time until its deadline; zero if it is lost. Writes the deadline for inner `run`s.
    fn look(&mut self) -> Duration {
        match self {
            Self::Own(lease, file) => {
                let remaining = lease.remaining();
                if let Some(file) = file {
                    file.publish(remaining);
                }
                remaining
            }
            Self::Outer(lease) => lease.remaining(),
        }
    }

    /// Waits until the lease is lost. The loss of an outer lease shows at the next look.
    pub(super) async fn lost(&self) {
        match self {
            Self::Own(lease, _) => lease.lost().await,
            Self::Outer(_) => std::future::pending().await,
        }
    }

    /// Finds whether the lease has ended, though nobody has noticed it. If the lock service doesn't
    /// answer, the deadline decides.
    pub(super) async fn has_ended(&mut self) -> bool {
        match self {
            // With Redlock, a status would not show it: a node that does not answer may have the
            // lock.
            Self::Own(lease, _) if !lease.remaining().is_zero() => {
                matches!(lease.renew().await, Err(RenewError::Lost(_)))
            }
            Self::Own(..) => true,
            Self::Outer(lease) => {
                lease.is_lost |= is_lost(&lease.locks, &lease.record).await;
                lease.remaining().is_zero()
            }
        }
    }
}

/// The lease of an outer `run`. It lasts until the deadline that this run has written, unless the lock
/// service shows that the lock is another's, or nobody's.
#[derive(Debug)]
pub(super) struct ObservedLease {
    locks: Locks,
    record: LeaseRecord,
    deadline: OuterDeadline,
    is_lost: bool,
    /// It ends when the lock service shows that the lease is lost.
    observer: JoinHandle<()>,
}

impl ObservedLease {
    pub(super) fn start(locks: Locks, record: LeaseRecord, deadline: OuterDeadline) -> Self {
        let observed = (locks.clone(), record.clone());
        let observer = tokio::spawn(async move {
            let (locks, record) = observed;
            while !is_lost(&locks, &record).await {
                sleep(LOOK_INTERVAL).await;
            }
        });
        Self { locks, record, deadline, is_lost: false, observer }
    }

    fn remaining(&mut self) -> Duration {
        if self.is_lost || self.observer.is_finished() {
            return Duration::ZERO;
        }
        self.deadline.remaining()
    }
}

impl Drop for ObservedLease {
    fn drop(&mut self) {
        self.observer.abort();
    }
}

async fn is_lost(locks: &Locks, record: &LeaseRecord) -> bool {
    let status = locks.status(&record.resource).await;
    status.is_ok_and(|status| !record.owns(status.held.as_ref()))
}

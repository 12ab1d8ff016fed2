//! The lease under which the command of `run` works: that of this process, or of an outer `run`.

use std::time::Duration;

use lock_client::{Lease, Locks, RenewError};

use super::{
    deadline::{DeadlineFile, OuterDeadline},
    lost_lease::{Action, LeaseWatch},
};
use crate::environment::LeaseRecord;

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
    /// An outer `run` renews it, until this deadline.
    Outer(&'a LeaseRecord, &'a Locks, OuterDeadline),
}

impl GuardedLease<'_> {
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
            Self::Outer(.., deadline) => deadline.remaining(),
        }
    }

    /// Waits until the lease is lost. The loss of an outer lease shows at the next look.
    pub(super) async fn lost(&self) {
        match self {
            Self::Own(lease, _) => lease.lost().await,
            Self::Outer(..) => std::future::pending().await,
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
            Self::Outer(record, locks, deadline) => {
                let status = locks.status(&record.handle.name).await;
                if status.is_ok_and(|status| !record.owns(status.held.as_ref())) {
                    deadline.end();
                }
                deadline.remaining().is_zero()
            }
        }
    }
}

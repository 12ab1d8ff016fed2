//! `run` within a `run` of the same name: it re-enters the lock that the outer one holds.

use lock_client::{Locks, Moment};

use super::{
    arguments::Run,
    events::Event,
    guard::{Guard, GuardedLease, ObservedLease},
    job::Job,
    lost_lease::LeaseWatch,
    new_lock::result,
};
use crate::{environment::LeaseRecord, failure::Failure};

/// The grace is at most this part of the outer lease. Of its ttl, which is not known here, a renewal
/// leaves two thirds.
const GRACE_OF_LEASE: u32 = 4;

/// Runs the job under the lease of an outer `run`, which holds the lock until a moment unless it
/// renews it.
pub(super) async fn run(
    arguments: &Run,
    locks: &Locks,
    lease: LeaseRecord,
    until: Moment,
    mut job: Job,
) -> Result<(), Failure> {
    let resource = arguments.name.as_str();
    job.reporter.event(&Event::ReEntered { resource, token: lease.token });
    let remaining = until.remaining();
    let grace = job.grace.min(remaining / GRACE_OF_LEASE);
    let watch = LeaseWatch::new(arguments.on_lost, grace, remaining, remaining);
    let observed = ObservedLease::start(locks.clone(), lease.clone(), until);
    let mut guard = Guard { lease: GuardedLease::Outer(observed), watch };
    let status = job.run(&lease, &mut guard).await?;
    result(status, &guard)
}

//! `run` within a `run` of the same name: it re-enters the lock that the outer one holds.

use fence::ResourceName;

use super::{
    events::{Event, Reason},
    job::Job,
};
use crate::{environment::OuterLease, exit_code, failure::Failure};

/// Runs the job under the lease of an outer `run`, if that lease is still held.
pub(super) async fn run(
    name: &ResourceName,
    outer: &OuterLease,
    mut job: Job<'_>,
) -> Result<(), Failure> {
    if !outer.is_held {
        job.reporter.lost(name, Reason::NotOurs);
        job.reporter.message(format!(
            "FENCING_RESOURCE or FENCING_OUTER names an outer `lock-client run {name}`, which has \
             lost its lock; if there is no such run, unset both"
        ));
        return Err(Failure::Reported { code: exit_code::LEASE_LOST });
    }
    let lease = &outer.record;
    job.reporter.event(&Event::ReEntered { resource: name.as_str(), token: lease.token });
    job.run(lease, None).await?.into_result()
}

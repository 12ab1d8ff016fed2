//! `run` with a lock of its own: acquires it, runs the command, and releases it.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

use lock_client::{Lease, Locks, Released};

use super::{
    arguments::Run,
    events::{Event, Reason},
    guard::{Guard, GuardedLease},
    job::Job,
    lost_lease::LeaseWatch,
    reporter::Reporter,
};
use crate::{
    acquisition::{NotAcquired, acquire},
    environment::LeaseRecord,
    exit_code,
    failure::{Failure, with_causes},
};

const LEASE_LOST: Failure = Failure::Reported { code: exit_code::LEASE_LOST };

/// Acquires the lock, runs the job, and releases the lock.
pub(super) async fn run(arguments: &Run, locks: &Locks, mut job: Job) -> Result<(), Failure> {
    // 1. Acquire the lock.
    let Some(lease) = acquire_unless_skipped(arguments, locks, &mut job).await? else {
        return Ok(());
    };
    let Ok(record) = LeaseRecord::new(&lease, &arguments.lock_service, locks) else {
        job.reporter.lost(&arguments.name, Reason::Expired);
        release(lease, &mut job.reporter).await;
        return Err(LEASE_LOST);
    };
    job.reporter.event(&Event::Acquired {
        resource: arguments.name.as_str(),
        token: record.token,
        deadline_ms: record.deadline_ms,
    });

    // 2. Run the command. The library renews the lease meanwhile.
    let ttl = arguments.first_ttl();
    let watch = LeaseWatch::new(arguments.on_lost, job.grace, ttl.as_duration(), lease.remaining());
    let watch = match arguments.max_hold {
        Some(max_hold) => watch.until(max_hold.saturating_sub(ttl.as_duration())),
        None => watch,
    };
    let mut guard = Guard { lease: GuardedLease::Own(&lease), watch };
    let end = job.run(&record, &mut guard).await;
    let result = end.and_then(|status| result(status, &guard));

    // 3. Release the lock, whatever happened.
    release(lease, &mut job.reporter).await;
    result
}

/// The result of `run` when its command has ended.
pub(super) fn result(status: ExitStatus, guard: &Guard<'_>) -> Result<(), Failure> {
    if guard.watch.lost().is_some() {
        return Err(LEASE_LOST);
    }
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (_, Some(signal)) => Err(Failure::Signal(signal)),
        (code, None) => {
            let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
            Err(Failure::Reported { code })
        }
    }
}

/// Acquires the lock. `None` if another client holds it, and `--skip-if-busy` is given.
async fn acquire_unless_skipped(
    arguments: &Run,
    locks: &Locks,
    job: &mut Job,
) -> Result<Option<Lease>, Failure> {
    let Run { name, terms, max_hold, skip_if_busy, .. } = arguments;
    let waits = terms.wait.is_some() || !skip_if_busy;
    let terms = if waits { terms.terms() } else { terms.terms().no_wait() };
    let terms = max_hold.map_or(terms, |max_hold| terms.max_hold(*max_hold));
    let waiting = job.reporter.waiting(name, arguments.terms.order());
    let reason = match acquire(locks, name, terms, &mut job.signals, waiting).await {
        Ok(lease) => return Ok(Some(lease)),
        Err(reason) => reason,
    };
    match &reason {
        NotAcquired::Interrupted(signal) => {
            job.reporter.event(&Event::Interrupted { signal: signal.as_raw() });
        }
        NotAcquired::Busy(message) => {
            job.reporter.event(&Event::Busy);
            if *skip_if_busy {
                return Ok(None);
            }
            job.reporter.message(message);
            let code = arguments.conflict_exit_code.unwrap_or(exit_code::BUSY);
            return Err(Failure::Reported { code });
        }
        NotAcquired::Failed(_) => {}
    }
    Err(job.reporter.failed(reason.into()))
}

async fn release(lease: Lease, reporter: &mut Reporter) {
    match lease.release().await {
        Ok(Released::Released) => reporter.event(&Event::Released),
        Ok(Released::NotHeld | Released::StillHeld) => reporter.event(&Event::NotHeld),
        Err(error) => {
            let error = with_causes(&error);
            reporter.event(&Event::NotReleased { error: &error });
            reporter.message(format!(
                "the lock was not released, and is free when its ttl ends: {error}"
            ));
        }
    }
}

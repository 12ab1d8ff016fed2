//! `lock-client run`: a command under a lock.
//!
//! `Run::run` acquires the lock, runs the command and releases the lock, or runs it under a lock that
//! an outer `run` holds. `supervision` watches over the child and the lease. `lost_lease` decides
//! what happens to the child when the lease is lost. `descendants` are the processes that the command
//! has started; they keep the lock.

mod arguments;
mod child;
mod command;
mod deadline;
mod descendants;
mod guard;
mod lost_lease;
mod reporter;
mod status_fd;
mod supervision;

use std::{iter, os::unix::process::ExitStatusExt, path::Path, time::Duration};

use lock_client::{Lease, Locks, Moment, Released, Ttl};
use rustix::process::Signal;

pub(crate) use self::arguments::{Run, help};
use self::{
    child::Child,
    command::{Command, exec_error},
    deadline::{DeadlineFile, OuterDeadline},
    descendants::Descendants,
    guard::{Guard, GuardedLease},
    lost_lease::{Action, LeaseWatch, grace},
    reporter::{Event, Reason, Reporter},
    status_fd::StatusFd,
    supervision::Supervision,
};
use crate::{
    acquisition::acquire,
    environment::{LeaseRecord, OuterLeases},
    exit_code,
    failure::{Failure, with_causes},
    lock_service::LockService,
    signals::{FORWARDED, Signals},
    stderr,
};

const LEASE_LOST: Failure = Failure::Reported(exit_code::LEASE_LOST);

/// The command, with everything that it needs while it runs.
#[derive(Debug)]
struct Job<'a> {
    arguments: &'a Run,
    lock_service: &'a LockService,
    command: Command,
    locks: &'a Locks,
    /// The leases of the other outer `run`s.
    outer: OuterLeases,
    reporter: Reporter<'a>,
    signals: Signals,
}

impl Run {
    pub(crate) async fn run(self, lock_service: &LockService) -> Result<(), Failure> {
        let grace = self.grace(self.first_ttl().as_duration())?;
        let status =
            self.status_fd.map(|number| StatusFd::open(number.cast_signed())).transpose()?;
        let mut outer = OuterLeases::from_environment()?;
        let signals = Signals::listen(FORWARDED)?;
        let reporter = Reporter { name: &self.name, status };
        let run = async |locks: &Locks| {
            let command = Command::find(self.command.clone());
            let command = command.map_err(|failure| reporter.failed(failure))?;
            let same_lock = outer.take(&self.name, locks).await;
            let same_lock = same_lock.map_err(|failure| reporter.failed(failure))?;
            let arguments = &self;
            let job = Job { arguments, lock_service, command, locks, outer, reporter, signals };
            match same_lock {
                Some(record) => job.re_enter(record).await,
                None => job.run_under_new_lock(grace).await,
            }
        };
        lock_service.with_options(&self.terms).with_locks(run).await
    }

    /// How long the lock is granted for at first.
    fn first_ttl(&self) -> Ttl {
        let ttl = self.terms.ttl;
        self.max_hold.map_or(ttl, |max_hold| ttl.at_most(*max_hold))
    }

    fn grace(&self, ttl: Duration) -> Result<Duration, Failure> {
        grace(self.kill_after.map(Into::into), ttl).map_err(Failure::usage)
    }
}

impl Job<'_> {
    /// Acquires the lock, runs the command, and releases the lock.
    async fn run_under_new_lock(mut self, grace: Duration) -> Result<(), Failure> {
        let arguments = self.arguments;
        let ttl = arguments.first_ttl();
        // 1. Acquire the lock.
        let Some(lease) = self.acquire_unless_skipped().await? else {
            return Ok(());
        };
        let Ok(mut record) = LeaseRecord::new(&lease, ttl, self.locks) else {
            self.reporter.lost(Reason::Expired);
            self.release(lease).await?;
            return Err(LEASE_LOST);
        };
        self.reporter.event(&Event::Acquired {
            resource: arguments.name.as_str(),
            token: record.handle.token,
            deadline_ms: record.handle.deadline_ms,
        });

        // 2. Run the command. The library renews the lease meanwhile.
        let (ttl, remaining) = (ttl.as_duration(), lease.remaining());
        let last_deadline = arguments
            .max_hold
            .map(|max_hold| Moment::now() + remaining + max_hold.saturating_sub(ttl));
        let file = DeadlineFile::create(remaining);
        let file = file.inspect_err(|error| tracing::warn!(%error, "no file has the deadline"));
        let file = file.ok();
        // The environment has it as JSON, which takes UTF-8 only.
        let path = file.as_ref().map(DeadlineFile::path).filter(|path| path.to_str().is_some());
        record.deadline_file = path.map(Path::to_owned);
        let watch = LeaseWatch::new(arguments.on_lost, grace, ttl, remaining).until(last_deadline);
        let guard = Guard { lease: GuardedLease::Own(&lease, file), watch };
        let result = self.run_under(&record, guard, grace).await;

        // 3. Release the lock, whatever happened.
        self.release(lease).await.and(result)
    }

    /// Runs the command under the lease of an outer `run`.
    async fn re_enter(mut self, lease: LeaseRecord) -> Result<(), Failure> {
        let Run { name, max_hold, on_lost, .. } = self.arguments;
        self.reporter
            .event(&Event::ReEntered { resource: name.as_str(), token: lease.handle.token });
        let ttl = lease.handle.ttl()?;
        let ttl = max_hold.map_or(ttl, |max_hold| ttl.at_most(*max_hold)).as_duration();
        let mut deadline = OuterDeadline::open(&lease);
        let remaining = deadline.remaining();
        let grace = self.arguments.grace(ttl)?;
        let watch = LeaseWatch::new(*on_lost, grace, ttl, remaining)
            .until(max_hold.map(|max_hold| Moment::now() + *max_hold));
        let guard = Guard { lease: GuardedLease::Outer(&lease, self.locks, deadline), watch };
        self.run_under(&lease, guard, grace).await
    }

    /// Starts the command with a lease in its environment, and supervises it until it ends.
    async fn run_under(
        &mut self,
        lease: &LeaseRecord,
        mut guard: Guard<'_>,
        grace: Duration,
    ) -> Result<(), Failure> {
        let Self { arguments, lock_service, command, outer, reporter, signals, .. } = self;
        let close = arguments.close;
        // 1. A command that would have to be ended at once is not started.
        if let Some(Action::Lost(reason, _)) = guard.next_action() {
            reporter.lost(reason);
            return Err(LEASE_LOST);
        }
        let descendants = match Descendants::adopt() {
            // Only Linux lets a process adopt its descendants.
            _ if !cfg!(target_os = "linux") => None,
            // They are ended with a lost lease as far as they can be seen.
            Err(_) if close => None,
            adopted => Some(adopted?),
        };
        // 2. Nor is one after a signal. One that comes from now on is forwarded.
        if let Some(received) = signals.take() {
            reporter.event(&Event::Interrupted { signal: received.signal.as_raw() });
            return Err(received.into());
        }
        signals.add(&[Signal::CONT, Signal::TSTP])?;
        // 3. Run it, and wait for it.
        let urls = lock_service.urls_without_password();
        let child = Child::spawn(command, descendants, |environment| {
            outer.set_variables(environment, lease, urls.as_deref());
        });
        let child = child.map_err(|error| reporter.failed(exec_error(&command.program, &error)))?;
        let supervision = Supervision::new(child, &mut guard, grace, reporter, signals);
        let status = supervision.run(close).await?;
        let Some(status) = status.filter(|_| guard.watch.lost().is_none()) else {
            return Err(LEASE_LOST);
        };
        match (status.code(), status.signal()) {
            (Some(0), _) => Ok(()),
            (_, Some(signal)) => Err(Failure::Signal(signal)),
            (code, None) => {
                let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
                Err(Failure::Reported(code))
            }
        }
    }

    /// Acquires the lock. `None` if another client holds it, and `--skip-if-busy` is given.
    async fn acquire_unless_skipped(&mut self) -> Result<Option<Lease>, Failure> {
        let Self { arguments, locks, reporter, signals, .. } = self;
        let Run { name, terms, max_hold, skip_if_busy, .. } = arguments;
        let order = terms.order();
        let waits = terms.wait.is_some() || !skip_if_busy;
        let terms = if waits { terms.terms() } else { terms.terms().no_wait() };
        let terms = max_hold.map_or(terms, |max_hold| terms.max_hold(*max_hold));
        let acquired = acquire(locks, name, terms, order, signals, reporter.listener()).await;
        match acquired.map_err(|failure| reporter.failed(failure)) {
            Ok(lease) => Ok(Some(lease)),
            Err(Failure::Message(exit_code::BUSY, _)) if *skip_if_busy => Ok(None),
            Err(Failure::Message(exit_code::BUSY, message)) => {
                let code = arguments.conflict_exit_code.unwrap_or(exit_code::BUSY);
                stderr::print(message);
                Err(Failure::Reported(code))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Releases the lock. Fails if a signal comes, and the lock service does not answer.
    async fn release(&mut self, lease: Lease) -> Result<(), Failure> {
        let Self { reporter, signals, .. } = self;
        let error = match lease.release().await {
            Ok(released) => {
                let was_held = released == Released::Released;
                reporter.event(if was_held { &Event::Released } else { &Event::NotHeld });
                return Ok(());
            }
            Err(error) => with_causes(&error),
        };
        reporter.event(&Event::NotReleased { error: &error });
        stderr::print(format!("the lock may stay held until its ttl ends: {error}"));
        let ending = iter::from_fn(|| signals.take()).find(|received| received.is_ending());
        ending.map_or(Ok(()), |received| Err(Failure::Interrupted(received.signal.as_raw())))
    }
}

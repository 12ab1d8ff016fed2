//! `lock-client run`: a command under a lock.

#[cfg(target_os = "linux")]
mod bound;
mod child;
mod command;
mod environment;
mod loss;
mod status;
mod supervision;

use std::{ffi::OsString, io, time::Duration};

use clap::Args;
use fence::ResourceName;
use rustix::process::Signal;

#[cfg(target_os = "linux")]
pub(crate) use self::bound::Become;
use self::{
    child::Child,
    command::Command,
    environment::{Inherited, Told},
    loss::{OnLost, Watch},
    status::{Event, Reason, Status},
    supervision::{End, Guard, supervise},
};
use super::{
    Failure, LockService, name,
    signals::Signals,
    terms::{NotAcquired, TermsArgs, acquire},
    voice::Voice,
    with_causes,
};
use lock_client::{AcquireError, Lease, Locks, Released};

/// What `run` exits with when the lease was lost.
const LOST: u8 = 79;

pub(crate) const HELP: &str = "\
The lock is renewed at a third of its ttl, for as long as the command runs, and released when it has \
ended. The command finds in its environment FENCING_TOKEN, FENCING_HOLDER, FENCING_RESOURCE, and \
FENCING_DEADLINE_MS (Unix time), until when the lock was granted at first. FENCED_REDIS names the Redis \
too, but only if its URL has no password.

What protects is the token: send it with every write, to a storage that checks it. That the command is \
ended when its lease is lost is a courtesy, which comes too late if this process, or the whole machine, \
was paused: the command then acts without the lock until both go on.

When the lease can't be renewed, the command gets SIGTERM early enough that --kill-after, and SIGKILL, \
end before the ttl does. When somebody has taken the lock away, it gets SIGTERM at once, and SIGKILL \
after --kill-after, or when the lease would have ended, if that is sooner. The exit code then is 79, \
whatever the command did.

SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM and SIGCONT are sent on to the command; \
SIGINT and SIGQUIT only if a terminal has not sent them to it already: in the foreground of a terminal \
they are taken to come from it, so one that is sent to this process alone, by kill, has no effect there. \
Any of these signals ends the wait, while there is no lock yet. Of them, one that was ignored from the start \
stays ignored. If SIGINT of a terminal ends the command, or the wait, this process ends by SIGINT too, so \
that a shell ends its loop. Ctrl-Z stops both, and nothing is renewed meanwhile.

All signals go to the command itself, not to what it has started in turn. If this process is killed, \
even by SIGKILL, the command is killed with it (on Linux, and unless it is a set-user-ID program); what \
the command has started lives on, without the lock.

Within the command, run with the same NAME runs its command at once, under the lock that is held \
already, if it still is: if not, nothing is run, and the exit code is 79. That holds through other names \
as well: FENCING_OUTER tells of the locks that are held above the innermost one, as JSON.

--status-fd N writes JSON lines to the descriptor N, which the command inherits too: acquired, \
re-entered, busy, unavailable, interrupted, cannot-run, started, lost, exited (with the command's own \
code), killed (with the signal), released, not-held, not-released. It waits for nobody: what a pipe or a \
socket doesn't take at once is not told.

Exit codes: the command's own, or 128+n if signal n ended it, or
  64  wrong usage
  69  Redis can't be reached
  75  somebody else holds the lock
  79  the lease was lost
 126  the command can't be executed
 127  there is no such command
126 and 127 are told before the lock is taken. If signal n ended the wait for the lock, it is 128+n.

Example:
  lock-client run invoice-7 --wait 10s -- sh -c '
    curl -X PUT -H \"Fencing-Token: $FENCING_TOKEN\" \\
      -H \"Fencing-Holder: $FENCING_HOLDER\" \\
      -d paid http://127.0.0.1:8034/v1/resources/invoice-7'";

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The lock's name
    #[arg(value_parser = name)]
    name: ResourceName,

    #[command(flatten)]
    lock_service: LockService,

    #[command(flatten)]
    terms: TermsArgs,

    /// What to do to the command when the lease is lost: term, continue, or signal:NAME
    ///
    /// term sends SIGTERM, and SIGKILL after --kill-after; continue does nothing; signal:USR1 sends
    /// that one signal, as early as term would. The exit code is 79 in any case.
    #[arg(long, default_value = "term", value_name = "ACTION")]
    on_lost: OnLost,

    /// How long the command has between SIGTERM and SIGKILL, half of the ttl at most
    /// [default: 5s, or a third of the ttl if that is shorter]
    #[arg(long, value_name = "DURATION")]
    kill_after: Option<humantime::Duration>,

    /// What to exit with, instead of 75, if somebody else holds the lock
    #[arg(long, value_name = "N")]
    conflict_exit_code: Option<u8>,

    /// If somebody else holds the lock, say nothing, don't wait unless --wait is given, and exit with 0
    #[arg(long, conflicts_with = "conflict_exit_code")]
    skip_if_busy: bool,

    /// Tell what happens as JSON lines on this open file descriptor
    #[arg(long, value_name = "N")]
    status_fd: Option<u32>,

    /// The command to run
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Run {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        #[cfg(target_os = "linux")]
        bound::can_be_started()?;
        let grace = self.kill_after.map(Into::into);
        let grace = loss::grace(grace, self.terms.ttl).map_err(Failure::Usage)?;
        let status = Status::to(self.status_fd)?;
        let mut outer = Inherited::read()?;
        let same = outer.take(&self.name);
        let signals = Signals::forwarded()?;
        let voice = Voice::new();
        let lock_service = self.lock_service.clone();
        let run = async |locks: &Locks| {
            let locks = locks.clone();
            let running = Running { run: self, locks, outer, grace, status, signals, voice };
            match same {
                None => running.under_a_new_lock().await,
                Some(lease) => running.under_the_same_lock(&lease).await,
            }
        };
        lock_service.with_locks(run).await
    }
}

/// Refuses what would wait for a lock that a `run` above holds.
pub(crate) fn not_held_above(name: &ResourceName) -> Result<(), Failure> {
    match Inherited::read()?.take(name) {
        None => Ok(()),
        Some(_) => Err(Failure::Usage(format!(
            "this runs under a run {name}, which holds that lock: write with its FENCING_TOKEN and \
             FENCING_HOLDER; or unset FENCING_RESOURCE and FENCING_OUTER where that is not so"
        ))),
    }
}

/// A run, and whom it listens and talks to.
struct Running {
    run: Run,
    locks: Locks,
    /// The leases of other names that the `run`s above this one hold.
    outer: Inherited,
    grace: Duration,
    status: Status,
    signals: Signals,
    voice: Voice,
}

impl Running {
    /// Acquires the lock, runs the command, and releases the lock.
    async fn under_a_new_lock(mut self) -> Result<(), Failure> {
        let command = self.find_command()?;
        let lease = self.acquire().await?;
        let Ok(told) = Told::of(&lease) else {
            self.lose(Reason::Expired);
            self.release(lease).await;
            return Err(Failure::Told(LOST));
        };
        self.status.tell(&told.acquired());

        let watch = Watch::new(self.run.on_lost, self.grace, self.run.terms.ttl, lease.remaining());
        let mut guard = Guard { lease: &lease, watch };
        let end = self.run_to_its_end(&command, &told, Some(&mut guard)).await;

        let lost = match guard.watch.lost() {
            None => self.lost_unnoticed(&guard).await,
            lost => lost,
        };
        self.release(lease).await;
        match (end?, lost) {
            (End::Ran(_) | End::Interrupted, Some(_)) => Err(Failure::Told(LOST)),
            (end, _) => Err(end.told()),
        }
    }

    /// Runs the command under the lock that a `run` above this one holds, and goes on holding.
    async fn under_the_same_lock(mut self, lease: &Told) -> Result<(), Failure> {
        let command = self.find_command()?;
        let name = self.run.name.clone();
        let is_held = lease.is_held(&self.locks).await;
        if let Err(failure) = &is_held {
            self.status.tell(&Event::Unavailable { error: failure.message() });
        }
        if !is_held? {
            self.lose(Reason::NotOurs);
            self.voice.say(format!(
                "FENCING_RESOURCE or FENCING_OUTER says that this runs under a run {name} that has \
                 lost it; unset both where that is not so"
            ));
            return Err(Failure::Told(LOST));
        }
        self.status.tell(&Event::ReEntered { resource: name.as_str(), token: lease.token });
        Err(self.run_to_its_end(&command, lease, None).await?.told())
    }

    fn find_command(&mut self) -> Result<Command, Failure> {
        Command::find(std::mem::take(&mut self.run.command)).map_err(|reason| {
            self.status.tell(&Event::CannotRun { error: reason.message() });
            self.voice.say(reason.message());
            Failure::Told(reason.exit_code())
        })
    }

    async fn acquire(&mut self) -> Result<Lease, Failure> {
        let Run { name, terms, skip_if_busy, .. } = &self.run;
        let waits = terms.wait.is_some() || !skip_if_busy;
        let terms = if waits { terms.terms() } else { terms.terms().no_wait() };
        let reason = match acquire(&self.locks, name, terms, &mut self.signals).await {
            Ok(lease) => return Ok(lease),
            Err(reason) => reason,
        };
        match &reason {
            NotAcquired::Interrupted(signal) => {
                self.status.tell(&Event::Interrupted { signal: signal.as_raw() });
            }
            NotAcquired::Because(AcquireError::Contended { .. }) => {
                self.status.tell(&Event::Busy);
                if *skip_if_busy {
                    return Err(Failure::Told(0));
                }
                self.voice.say(format!("somebody else holds the lock {name}"));
                let asked = self.run.conflict_exit_code;
                return Err(Failure::Told(asked.unwrap_or(Failure::Busy.exit_code())));
            }
            NotAcquired::Because(_) => {}
        }
        let failure = reason.into();
        if let Failure::Unavailable(error) = &failure {
            self.status.tell(&Event::Unavailable { error });
        }
        Err(failure)
    }

    async fn run_to_its_end(
        &mut self,
        command: &Command,
        told: &Told,
        guard: Option<&mut Guard<'_>>,
    ) -> Result<End, Failure> {
        self.signals.listen_for(Signal::CONT)?;
        let child = Child::spawn(command, |environment| {
            told.set(environment);
            self.outer.set(environment);
            environment::set_redis(environment, &self.run.lock_service.urls());
        });
        match child {
            Ok(child) => supervise(child, command, guard, self).await,
            Err(error) if Child::is_of_the_command(&error) => Ok(self.not_run(command, &error)),
            Err(error) => {
                let error = format!("a step of run can't be started: {error}");
                self.status.tell(&Event::CannotRun { error: &error });
                Err(Failure::Unavailable(error))
            }
        }
    }

    fn not_run(&mut self, command: &Command, error: &io::Error) -> End {
        let reason = command::refused(&command.program, error);
        self.status.tell(&Event::CannotRun { error: reason.message() });
        self.voice.say(reason.message());
        End::NotRun(reason.exit_code())
    }

    fn lose(&mut self, reason: Reason) {
        self.status.tell(&Event::Lost { reason });
        self.voice.say(format!("{}: {}", self.run.name, reason.told()));
    }

    /// Tells whether the lease was lost before the command ended, though nothing had told so yet: the
    /// lock service may have lost the lock since the last renewal. If it doesn't answer, the deadline
    /// decides.
    async fn lost_unnoticed(&mut self, guard: &Guard<'_>) -> Option<Reason> {
        let lease = guard.lease;
        let reason = match guard.watch.gone(lease.remaining()) {
            None => match self.locks.status(lease.name()).await {
                Ok(status) => {
                    let held = status.held.map(|held| held.ownership);
                    (held.as_ref() != Some(lease.ownership())).then_some(Reason::NotOurs)
                }
                Err(_) => None,
            },
            gone => gone,
        }?;
        self.lose(reason);
        Some(reason)
    }

    async fn release(&mut self, lease: Lease) {
        match lease.release().await {
            Ok(Released::Released) => self.status.tell(&Event::Released),
            Ok(Released::NotHeld | Released::StillHeld) => self.status.tell(&Event::NotHeld),
            Err(error) => {
                let error = with_causes(&error);
                self.status.tell(&Event::NotReleased { error: &error });
                self.voice
                    .say(format!("the lock was not released, and is free after its ttl: {error}"));
            }
        }
    }
}

//! The supervision of a running child and its lease.

use std::{
    future::pending, io, mem, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration,
};

use rustix::process::Signal;
use signal_hook::low_level::emulate_default_handler;
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    child::Child,
    guard::Guard,
    lost_lease::Action,
    reporter::{Event, Reporter},
};
use crate::{
    failure::Failure,
    signals::{Received, Signals},
    stderr,
};

/// How often to look for new processes while all are ending.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long to wait for the processes that the command has started, before a message says so.
const SAY_AFTER: Duration = Duration::from_secs(1);
/// How long to wait for processes that SIGKILL does not end: those of another user, which this process
/// may not signal, and those that wait for a disk that hangs.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// The supervision of a running child: it forwards signals, and acts when the lease is lost.
#[derive(Debug)]
pub(super) struct Supervision<'a, 'l> {
    pub(super) child: Child,
    pub(super) guard: &'a mut Guard<'l>,
    /// Whether the lock is released when the command itself has ended.
    pub(super) close: bool,
    /// The time between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
    pub(super) reporter: &'a mut Reporter,
    pub(super) signals: &'a mut Signals,
    /// When to wait no longer, after the lease was lost and SIGKILL was sent.
    pub(super) give_up_at: Option<Instant>,
}

impl Supervision<'_, '_> {
    /// Supervises the command until it has ended, and the processes that it has started. `None` if the
    /// lease is lost and they can't be ended.
    pub(super) async fn run(mut self) -> Result<Option<ExitStatus>, Failure> {
        let ended = self.wait().await;
        ended.map_err(|error| {
            self.child.end(Signal::KILL);
            Failure::Unavailable(format!("can't wait for the command: {error}"))
        })
    }

    async fn wait(&mut self) -> io::Result<Option<ExitStatus>> {
        // A signal that came before the command was executed has missed it. One that comes in this
        // moment rather comes twice than not at all.
        while let Some(received) = self.signals.take() {
            self.deliver(received);
        }
        self.reporter.event(&Event::Started { pid: self.child.id() });
        // 1. Wait for the command, and for those that it has started, which work under the lock.
        let Some((status, terminated)) = self.command_ended().await? else { return Ok(None) };
        self.reporter.event(&match status.signal() {
            None => Event::Exited { code: status.code().expect("no signal ended it") },
            Some(signal) => Event::Killed { signal },
        });
        if !self.close {
            // A command that takes SIGTERM may exit with any code.
            self.descendants_ended(terminated || status.signal().is_some()).await?;
        }
        // 2. Ask whether the lock was lost since the last renewal: the exit code must report that.
        if self.guard.watch.lost().is_none() && self.guard.lease.has_ended().await {
            self.look_at_lease();
        }
        // 3. Whatever works on under a lost lease is ended, also if it has not kept the lock.
        if self.child.ending().is_some() {
            self.descendants_ended(false).await?;
        }
        Ok(Some(status))
    }

    /// Waits until the command has ended. Returns also whether SIGTERM has come meanwhile.
    async fn command_ended(&mut self) -> io::Result<Option<(ExitStatus, bool)>> {
        let mut terminated = false;
        loop {
            // After SIGSTOP and SIGCONT, this comes before the SIGCONT is forwarded: a child whose
            // lease has expired must not continue.
            self.look_at_lease();
            tokio::select! {
                biased;
                status = self.child.ended() => return Ok(Some((status?, terminated))),
                received = self.signals.next() => {
                    terminated |= received.signal == Signal::TERM;
                    if !(received.went_to_group() && self.child.has_our_group()) {
                        self.deliver(received);
                    }
                }
                () = moment(self.give_up_at) => {
                    self.say_that_they_live_on();
                    return Ok(None);
                }
                () = next_look(self.guard) => {}
            }
            if self.child.has_stopped_for_terminal() {
                stderr::print(
                    "the command uses the terminal in the background, and has stopped; start run \
                     in the foreground instead",
                );
            }
        }
    }

    /// Sends a signal that this process has received to the command, or to its group if it went to the
    /// group of this process.
    fn deliver(&mut self, received: Received) {
        let signal = received.signal;
        if received.is_job_control() || received.may_be_of_terminal() {
            self.child.signal_group(signal);
        } else {
            self.child.signal(signal);
        }
        if signal == Signal::TSTP {
            // Returns when this process continues. If it fails, the command stops alone.
            let _ = emulate_default_handler(signal.as_raw());
        }
    }

    /// Waits until no process that the command has started is left. If a signal has ended the
    /// command, or comes now, they get SIGTERM, and SIGKILL after the grace.
    async fn descendants_ended(&mut self, mut end: bool) -> io::Result<()> {
        let mut kill_at = None;
        let mut say_at = Some(Instant::now() + SAY_AFTER);
        let mut look = true;
        let mut look_at = Instant::now();
        loop {
            self.look_at_lease();
            if mem::take(&mut end) {
                self.child.end(Signal::TERM);
                kill_at.get_or_insert(Instant::now() + self.grace);
            }
            if mem::take(&mut look) {
                if !self.child.has_descendants()? {
                    return Ok(());
                }
                look_at = Instant::now() + LOOK_INTERVAL;
            }
            let all_are_ending = self.child.ending().is_some();
            tokio::select! {
                biased;
                received = self.signals.next() => {
                    end = !received.is_job_control();
                    if !end {
                        self.deliver(received);
                    }
                }
                () = moment(kill_at) => {
                    self.child.end(Signal::KILL);
                    kill_at = None;
                }
                () = moment(self.give_up_at) => {
                    self.say_that_they_live_on();
                    return Ok(());
                }
                () = moment(say_at) => {
                    let left = self.child.describe_descendants();
                    let hint = if self.close { "" } else { "; run --close does not wait" };
                    stderr::print(format!(
                        "the command has ended, and run waits for {left}, which it has started{hint}",
                    ));
                    say_at = None;
                }
                () = next_look(self.guard) => {}
                // The last of them is a child of this process when it ends.
                () = self.child.any_ended() => look = true,
                // One that is ending may leave children, and nothing else shows those.
                () = sleep_until(look_at), if all_are_ending => look = true,
            }
        }
    }

    /// Does everything that the lease's watch asks for now. The signal comes before the report.
    fn look_at_lease(&mut self) {
        while let Some(action) = self.guard.next_action() {
            match action {
                Action::Lost(reason, signal) => {
                    match signal {
                        Some(Signal::KILL) => self.kill(),
                        Some(signal) => self.child.end(signal),
                        None => {}
                    }
                    self.reporter.lost(self.guard.lease.name(), reason);
                }
                Action::Kill => {
                    self.kill();
                    stderr::print("not all processes ended in time, and the rest was killed");
                }
            }
        }
    }

    /// Kills everything that works under a lost lease.
    fn kill(&mut self) {
        self.child.end(Signal::KILL);
        self.give_up_at = Some(Instant::now() + KILL_PATIENCE);
    }

    fn say_that_they_live_on(&self) {
        let left = self.child.describe_descendants();
        stderr::print(format!("{left} can't be ended, and goes on without the lock"));
    }
}

/// Waits until the lease must be looked at again.
async fn next_look(guard: &Guard<'_>) {
    let pause = sleep(guard.watch.pause());
    tokio::select! {
        () = guard.lease.lost(), if guard.watch.lost().is_none() => {}
        () = pause => {}
    }
}

/// Waits for a moment, if there is one.
async fn moment(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

//! The supervision of a running child and its lease.

use std::{
    future::pending, io, mem, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration,
};

use rustix::process::Signal;
use signal_hook::low_level::{emulate_default_handler, signal_name};
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
/// How long the command may take to stop after Ctrl-Z. If it takes longer, this process does not stop.
const STOP_PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait for processes that SIGKILL does not end: those of another user, which this process
/// may not signal, and those that wait for a disk that hangs.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// The supervision of a running child: it forwards signals, and acts when the lease is lost.
#[derive(Debug)]
pub(super) struct Supervision<'a, 'l> {
    child: Child,
    guard: &'a mut Guard<'l>,
    /// The time between SIGTERM and SIGKILL.
    grace: Duration,
    reporter: &'a Reporter<'a>,
    signals: &'a mut Signals,
    /// Whether SIGTERM has come. It ends also what the command leaves behind.
    terminated: bool,
    /// Until when this process stops if the command does.
    stop_until: Option<Instant>,
    /// When to wait no longer, after the lease was lost and SIGKILL was sent.
    give_up_at: Option<Instant>,
}

/// Why a wait has ended.
enum Happened {
    Signal(Received),
    ChildEnded,
    /// It is time to look again.
    Time,
}

impl<'a, 'l> Supervision<'a, 'l> {
    pub(super) fn new(
        child: Child,
        guard: &'a mut Guard<'l>,
        grace: Duration,
        reporter: &'a Reporter<'a>,
        signals: &'a mut Signals,
    ) -> Self {
        let (terminated, stop_until, give_up_at) = (false, None, None);
        Self { child, guard, grace, reporter, signals, terminated, stop_until, give_up_at }
    }

    /// Supervises the command until it has ended, and the processes that it has started, unless the
    /// lock is released before. `None` if the lease is lost and they can't be ended.
    pub(super) async fn run(mut self, close: bool) -> Result<Option<ExitStatus>, Failure> {
        let ended = self.wait(close).await;
        ended.map_err(|error| {
            self.child.end(Signal::KILL);
            Failure::unavailable(format!("can't wait for the command: {error}"))
        })
    }

    async fn wait(&mut self, close: bool) -> io::Result<Option<ExitStatus>> {
        // 1. Forward the signals that came before the command was executed, and have missed it. One
        //    that comes in this moment rather comes twice than not at all.
        while let Some(received) = self.signals.take() {
            self.note(received);
            self.forward(received);
        }
        self.reporter.event(&Event::Started { pid: self.child.id() });
        // 2. Wait for the command, and for those that it has started, which work under the lock.
        let Some(status) = self.command_ended().await? else { return Ok(None) };
        // A signal that came until now may have ended the command. It ends also what the command has
        // started. A later one ends the wait for an answer to the release, so it is not dropped.
        let mut end = status.signal().is_some();
        while let Some(received) = self.signals.take() {
            self.note(received);
            end |= !received.is_job_control();
        }
        self.reporter.event(&match status.signal() {
            None => Event::Exited { code: status.code().expect("no signal ended it") },
            Some(signal) => Event::Killed { signal },
        });
        if !close {
            // A command that takes SIGTERM may exit with any code.
            self.descendants_ended(end || self.terminated).await?;
        }
        // 3. Ask whether the lock was lost since the last renewal: the exit code must report that.
        if self.guard.watch.lost().is_none() && self.guard.lease.has_ended().await {
            self.look_at_lease();
        }
        // 4. Whatever works on under a lost lease is ended, also if it has not kept the lock.
        if self.child.ending().is_some() && !self.has_given_up() {
            self.descendants_ended(false).await?;
        }
        Ok(Some(status))
    }

    /// Waits until the command has ended. `None` if it can't be ended.
    async fn command_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        loop {
            let status = self.child.ended()?;
            self.stop_with_command();
            // After a stop, this comes before all continue: those whose lease has expired get SIGKILL
            // first. In the foreground, `fg` has continued the group of this process already.
            self.look_at_lease();
            if status.is_some() {
                return Ok(status);
            }
            if self.has_given_up() {
                self.say_that_they_live_on();
                return Ok(None);
            }
            if self.child.has_stopped_for_terminal() {
                stderr::print(
                    "the command uses the terminal in the background, and has stopped; start run \
                     in the foreground instead",
                );
            }
            if let Happened::Signal(received) = self.next(None).await {
                self.note(received);
                if !(received.went_to_group() && self.child.has_our_group()) {
                    self.forward(received);
                }
            }
        }
    }

    /// Waits until no process that the command has started is left. If a signal has ended the
    /// command, or comes now, they get SIGTERM, and SIGKILL after the grace.
    async fn descendants_ended(&mut self, mut end: bool) -> io::Result<()> {
        let mut kill_at = None;
        let mut say_at = Some(Instant::now() + SAY_AFTER);
        let (mut look, mut look_at) = (true, Instant::now());
        loop {
            self.stop_with_command();
            self.look_at_lease();
            let now = Instant::now();
            if mem::take(&mut end) {
                self.child.end(Signal::TERM);
                kill_at.get_or_insert(now + self.grace);
            }
            if kill_at.take_if(|at| *at <= now).is_some() {
                self.child.end(Signal::KILL);
            }
            // The last of them is a child of this process when it ends. One that is ending may leave
            // children, and nothing else shows those.
            let all_are_ending = self.child.ending().is_some();
            if mem::take(&mut look) || all_are_ending && look_at <= now {
                if !self.child.has_descendants()? {
                    return Ok(());
                }
                look_at = now + LOOK_INTERVAL;
            }
            if self.has_given_up() {
                self.say_that_they_live_on();
                return Ok(());
            }
            if say_at.take_if(|at| *at <= now).is_some() {
                let left = self.child.describe_descendants();
                stderr::print(format!(
                    "the command has ended, and run waits for {left}, which it has started; run \
                     --close does not wait",
                ));
            }
            let look_at = Some(look_at).filter(|_| all_are_ending);
            let next = [kill_at, say_at, look_at].into_iter().flatten().min();
            match self.next(next).await {
                Happened::Signal(received) if received.is_job_control() => self.note(received),
                Happened::Signal(_) => end = true,
                Happened::ChildEnded => look = true,
                Happened::Time => {}
            }
        }
    }

    /// Waits for a signal, for the end or the stop of a child, or until it is time to look again.
    async fn next(&mut self, at: Option<Instant>) -> Happened {
        let next = [at, self.stop_until, self.give_up_at].into_iter().flatten().min();
        tokio::select! {
            biased;
            received = self.signals.next() => Happened::Signal(received),
            () = self.child.any_ended() => Happened::ChildEnded,
            () = moment(next) => Happened::Time,
            () = next_look(self.guard) => Happened::Time,
        }
    }

    /// Notes what a signal means for this process.
    fn note(&mut self, received: Received) {
        match received.signal {
            Signal::TERM => self.terminated = true,
            Signal::TSTP => self.stop_until = Some(Instant::now() + STOP_PATIENCE),
            Signal::CONT => {
                self.stop_until = None;
                self.child.resume();
            }
            _ => {}
        }
    }

    /// Sends a signal that this process has received to the command, or to its group if it went to the
    /// group of this process.
    fn forward(&mut self, received: Received) {
        let signal = received.signal;
        let sent = match signal {
            // `note` has resumed everything.
            Signal::CONT => Ok(()),
            _ if received.is_for_all() => {
                self.child.end(signal);
                Ok(())
            }
            _ if received.is_job_control() || received.may_be_of_terminal() => {
                self.child.signal_group(signal)
            }
            _ => self.child.signal(signal),
        };
        if let Err(error) = sent {
            let name = signal_name(signal.as_raw()).unwrap_or("a signal");
            stderr::print(format!("{name} did not reach the command: {error}"));
        }
    }

    /// Stops this process if it shall stop and the command has stopped. Nobody renews the lock then, so
    /// everything else that works under it is stopped before. If that can't be done, all continue.
    fn stop_with_command(&mut self) {
        let Some(until) = self.stop_until else { return };
        let is_late = until <= Instant::now();
        if self.child.has_stopped() || is_late && self.child.is_uninterruptible() {
            if !self.child.stop() {
                self.child.resume();
                stderr::print(
                    "run does not stop, because something that works under the lock can't be stopped",
                );
            // Meanwhile SIGCONT may have come, and nobody would send another one. It is taken next, and
            // all continue. One that comes between this look and the stop is missed.
            } else if !self.signals.has_come(Signal::CONT) {
                // Returns when this process continues.
                let _ = emulate_default_handler(Signal::TSTP.as_raw());
            }
        } else if !is_late {
            return;
        }
        self.stop_until = None;
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
                    self.reporter.lost(reason);
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

    /// Whether to wait no longer for what lives on after SIGKILL.
    fn has_given_up(&self) -> bool {
        self.give_up_at.is_some_and(|at| at <= Instant::now())
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

async fn moment(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

//! The supervision of a running child and its lease.

use std::{
    future::pending, io, mem, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration,
};

use lock_client::Lease;
use rustix::process::Signal;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    child::{Child, CommandEnd, Progress},
    command::{self, Command},
    descendants::Ticks,
    events::Event,
    lost_lease::{Action, LeaseWatch, Response},
    reporter::Reporter,
    witness::Witness,
};
use crate::{
    exit_code,
    failure::Failure,
    signals::{SignalMask, Signals, failure_of_signal},
};

/// How much later than others of its group this process may notice a signal, on a busy machine. What
/// was started in this time may get SIGTERM twice, which is better than not at all.
const LATENESS: Duration = Duration::from_secs(1);
/// How often to look for new processes while all are ending.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long to wait for the processes that the command has started, before a message says so.
const SAY_AFTER: Duration = Duration::from_secs(1);

/// How long after a signal to ask whether the whole group has received it. `timeout` signals its
/// child first, and then the group; a service manager signals one process after the other.
const GROUP_PATIENCE: Duration = Duration::from_millis(20);
/// How long to wait for the terminal's SIGINT when it has ended the command already.
const INTERRUPT_PATIENCE: Duration = Duration::from_millis(100);

/// A lease, and the watch that decides what happens to the child when it is lost.
#[derive(Debug)]
pub(super) struct Guard<'a> {
    pub(super) lease: &'a Lease,
    pub(super) watch: LeaseWatch,
}

/// How the command of a job ended.
#[derive(Debug)]
pub(super) enum End {
    /// It ran, and ended with this exit code.
    Ran { code: u8 },
    /// It ran until SIGINT ended it, and this process received SIGINT too.
    Interrupted,
    /// The operating system did not execute it.
    NotRun(Failure),
}

impl End {
    /// The result of `run`, unless the lease was lost.
    pub(super) fn into_result(self) -> Result<(), Failure> {
        match self {
            Self::Ran { code: exit_code::SUCCESS } => Ok(()),
            Self::Ran { code } => Err(Failure::Reported { code }),
            Self::Interrupted => Err(failure_of_signal(Signal::INT)),
            Self::NotRun(failure) => Err(failure),
        }
    }
}

/// The supervision of a running child: it forwards signals, and acts when the lease is lost.
#[derive(Debug)]
pub(super) struct Supervision<'a, 'l> {
    pub(super) child: Child,
    pub(super) command: &'a Command,
    /// `None` if an outer `run` watches over the lease.
    pub(super) guard: Option<&'a mut Guard<'l>>,
    /// The time between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
    pub(super) reporter: &'a mut Reporter,
    pub(super) signals: &'a mut Signals,
    pub(super) witness: &'a mut Witness,
    /// A moment shortly before this process last received SIGTERM.
    pub(super) term_at: Option<Ticks>,
    /// The same for the last SIGTERM of the whole process group.
    pub(super) group_term_at: Option<Ticks>,
}

impl Supervision<'_, '_> {
    /// Supervises the command until it has ended, and the processes that it has started.
    pub(super) async fn run(mut self) -> Result<End, Failure> {
        let ended = self.wait().await;
        ended.map_err(|error| {
            self.child.end(Signal::KILL);
            Failure::Unavailable(format!("can't wait for the command: {error}"))
        })
    }

    async fn wait(&mut self) -> io::Result<End> {
        let mut received = Vec::new();
        let status = match self.command_ended(&mut received).await? {
            CommandEnd::Ended(status) => status,
            CommandEnd::NotRun(error) => {
                let reason = command::exec_error(&self.command.program, &error);
                return Ok(End::NotRun(self.reporter.cannot_run(&reason)));
            }
        };
        let code = report_end(status, self.reporter);
        if status.signal() == Some(Signal::INT.as_raw()) && !received.contains(&Signal::INT) {
            // A terminal has sent it to this process too, if it was a terminal.
            let signal = timeout(INTERRUPT_PATIENCE, self.signals.next()).await;
            received.extend(signal);
        }
        let by_signal = received.iter().any(|signal| status.signal() == Some(signal.as_raw()));
        // A command that takes SIGTERM may exit with any code.
        self.descendants_ended(by_signal || received.contains(&Signal::TERM)).await?;
        let interrupted = by_signal && status.signal() == Some(Signal::INT.as_raw());
        Ok(if interrupted { End::Interrupted } else { End::Ran { code } })
    }

    /// Waits until the command has ended, and collects the signals that this process receives
    /// meanwhile.
    async fn command_ended(&mut self, received: &mut Vec<Signal>) -> io::Result<CommandEnd> {
        let mut to_forward = Vec::new();
        let mut forward_at = None;
        loop {
            // 1. Look at the lease. After SIGSTOP and SIGCONT, this comes before the SIGCONT is
            //    forwarded: a child whose lease has expired must not continue.
            self.look_at_lease();
            // 2. Wait for the command, a signal, or the next look at the lease.
            tokio::select! {
                biased;
                progress = self.child.next() => match progress? {
                    Progress::Started => {
                        self.reporter.event(&Event::Started { pid: self.child.id() });
                    }
                    Progress::Over(end) => return Ok(end),
                },
                signal = self.signals.next() => {
                    self.record(signal);
                    received.push(signal);
                    if !to_forward.contains(&signal) {
                        to_forward.push(signal);
                    }
                    forward_at.get_or_insert(Instant::now() + GROUP_PATIENCE);
                }
                // 3. Forward signals, when it has shown whether they went to the whole group.
                () = moment(forward_at) => {
                    forward_at = None;
                    self.forward(mem::take(&mut to_forward)).await;
                }
                () = next_look(self.guard.as_deref()) => {}
            }
        }
    }

    /// Forwards signals, unless the command has received them as a member of this process group.
    async fn forward(&mut self, signals: Vec<Signal>) {
        let of_group = self.group_signals().await;
        for signal in signals {
            if !(of_group.contains(signal) && self.child.has_our_group()) {
                self.child.signal(signal);
            }
        }
    }

    fn record(&mut self, signal: Signal) {
        if signal == Signal::TERM {
            self.term_at = Some(Ticks::ago(LATENESS));
        }
    }

    /// Returns the signals that the whole process group has received since the last call. A witness
    /// that does not answer delays nothing that a lost lease asks for.
    async fn group_signals(&mut self) -> SignalMask {
        let until_next_action =
            self.guard.as_ref().map_or(Duration::MAX, |guard| guard.watch.until_next_action());
        let received = self.witness.received(until_next_action).await;
        if received.contains(Signal::TERM) {
            self.group_term_at = self.term_at;
        }
        received
    }

    /// Waits until no process that the command has started is left. If a signal has ended the
    /// command, or comes now, they get SIGTERM, and SIGKILL after the grace.
    async fn descendants_ended(&mut self, ending: bool) -> io::Result<()> {
        let mut end_at = ending.then(|| Instant::now() + GROUP_PATIENCE);
        let mut kill_at = None;
        let mut say_at = Some(Instant::now() + SAY_AFTER);
        let mut look = true;
        let mut look_at = Instant::now();
        loop {
            self.look_at_lease();
            if mem::take(&mut look) {
                if !self.child.has_descendants()? {
                    return Ok(());
                }
                look_at = Instant::now() + LOOK_INTERVAL;
            }
            let all_are_ending = self.child.descendants_are_ending();
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    self.record(signal);
                    if signal != Signal::CONT {
                        end_at.get_or_insert(Instant::now() + GROUP_PATIENCE);
                    }
                }
                // Those in this process group may have received SIGTERM already.
                () = moment(end_at) => {
                    end_at = None;
                    self.group_signals().await;
                    if let Some(received) = self.group_term_at {
                        self.child.group_received_term(received);
                    }
                    self.child.end(Signal::TERM);
                    kill_at.get_or_insert(Instant::now() + self.grace);
                }
                () = moment(kill_at) => {
                    self.child.end(Signal::KILL);
                    kill_at = None;
                }
                () = moment(say_at) => {
                    self.reporter.message(format!(
                        "the command has ended, and run waits for {}, which it has started; \
                         run --close does not wait",
                        self.child.describe_descendants(),
                    ));
                    say_at = None;
                }
                () = next_look(self.guard.as_deref()) => {}
                // The last of them is a child of this process when it ends.
                () = self.child.any_ended() => look = true,
                // One that is ending may leave children, and nothing else shows those.
                () = sleep_until(look_at), if all_are_ending => look = true,
            }
        }
    }

    /// Does everything that the lease's watch asks for now. The signal comes before the report.
    fn look_at_lease(&mut self) {
        let Some(Guard { lease, watch }) = &mut self.guard else {
            return;
        };
        while let Some(action) = watch.next_action(lease.remaining()) {
            match action {
                Action::Lost(reason, response) => {
                    match response {
                        Response::End(signal) => self.child.end(signal),
                        Response::Signal(signal) => self.child.signal(signal),
                        Response::Nothing => {}
                    }
                    self.reporter.lost(lease.name(), reason);
                }
                Action::Kill => {
                    self.child.end(Signal::KILL);
                    self.reporter
                        .message("not all processes ended in time, and the rest was killed");
                }
            }
        }
    }
}

/// Reports how the child ended, and returns its exit code.
fn report_end(status: ExitStatus, reporter: &mut Reporter) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => {
            reporter.event(&Event::Exited { code });
            u8::try_from(code).unwrap_or(u8::MAX)
        }
        (None, signal) => {
            let signal = signal.expect("a process without an exit code was ended by a signal");
            reporter.event(&Event::Killed { signal });
            exit_code::ended_by_signal(signal)
        }
    }
}

/// Waits until the lease must be looked at again.
async fn next_look(guard: Option<&Guard<'_>>) {
    let Some(Guard { lease, watch }) = guard else {
        return pending().await;
    };
    let pause = sleep(watch.pause());
    if watch.lost().is_some() {
        return pause.await;
    }
    tokio::select! {
        () = lease.lost() => {}
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

//! The signals that the command takes.

use std::{io, os::unix::net, time::Duration};

use rustix::process::{Signal, getpid};
use signal_hook::{
    iterator::{backend::SignalDelivery, exfiltrator::WithOrigin},
    low_level::siginfo::{Cause, Origin},
};
use tokio::{io::AsyncReadExt, net::UnixStream, time::Instant};

use crate::{failure::Failure, process_group::ProcessGroup};

/// The signals that `run` forwards to its child, and that end a wait for a lock.
pub(crate) const FORWARDED: &[Signal] = &[
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
];

/// The signals that end any other command.
pub(crate) const ENDING: &[Signal] = &[Signal::INT, Signal::TERM];

/// How long the same signal of the leader of this process's group counts as one. `timeout` signals its
/// child, and then its group, which the child is in. Nobody can count on two: the kernel makes one of
/// them, too, if the first was not taken yet.
const REPETITION: Duration = Duration::from_millis(100);

/// Signals that this process takes itself. From `listen` on, none of them ends the process.
///
/// A signal that the process was started to ignore, as `nohup` does with SIGHUP, stays ignored,
/// here and in the child. Only Linux shows which signals those are. A signal that the parent had
/// blocked is taken.
#[derive(Debug)]
pub(crate) struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
    /// The last signal of each number, and when it was taken.
    last: Vec<(Received, Instant)>,
}

/// A signal that this process has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) signal: Signal,
    /// The process that sent it, or 0 if that is in another PID namespace. `None` if the kernel sent
    /// it, for a terminal or a timer.
    sender: Option<i32>,
}

impl Signals {
    /// Takes these signals from now on.
    pub(crate) fn listen(signals: &[Signal]) -> Result<Self, Failure> {
        let pipe = || {
            let (ours, handlers) = net::UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            handlers.set_nonblocking(true)?;
            let none: [i32; 0] = [];
            let ours = UnixStream::from_std(ours)?;
            SignalDelivery::with_pipe(ours, handlers, WithOrigin::default(), none)
        };
        let delivery = pipe().map_err(|error| cannot_listen(&error))?;
        let mut listening = Self { delivery, last: Vec::new() };
        listening.add(signals)?;
        Ok(listening)
    }

    /// Takes more signals from now on.
    pub(crate) fn add(&mut self, signals: &[Signal]) -> Result<(), Failure> {
        for signal in not_ignored(signals) {
            let added = self.delivery.handle().add_signal(signal.as_raw());
            added
                .and_then(|()| inheritance::unblock(signal.as_raw()))
                .map_err(|error| cannot_listen(&error))?;
        }
        Ok(())
    }

    /// Waits for the next signal.
    ///
    /// # Cancellation safety
    /// If this future is dropped, no signal is missed.
    pub(crate) async fn next(&mut self) -> Received {
        loop {
            if let Some(received) = self.take() {
                return received;
            }
            // What a dropped future has read was only a hint to look again.
            let woken = self.delivery.get_read_mut().read(&mut [0; 64]).await;
            woken.expect("the other end is open as long as this one");
        }
    }

    /// Takes a signal that has come already.
    pub(crate) fn take(&mut self) -> Option<Received> {
        loop {
            let received = Received::new(&self.delivery.pending().next()?);
            if !self.is_repeated(received) {
                return Some(received);
            }
        }
    }

    fn is_repeated(&mut self, received: Received) -> bool {
        let now = Instant::now();
        let last = self.last.iter().position(|(last, _)| last.signal == received.signal);
        let last = last.map(|place| self.last.swap_remove(place));
        self.last.push((received, now));
        last.is_some_and(|(last, at)| last == received && now - at < REPETITION)
            && received.is_from_group_leader()
    }
}

impl Received {
    fn new(origin: &Origin) -> Self {
        let signal = Signal::from_named_raw(origin.signal).expect("only such signals are taken");
        let is_sent = matches!(origin.cause, Cause::Sent(_));
        let sender = origin.process.filter(|_| is_sent).map(|process| process.pid);
        Self { signal, sender }
    }

    /// Whether the terminal sent it. For a timer, the kernel sends SIGALRM.
    pub(crate) fn is_from_terminal(self) -> bool {
        self.sender.is_none() && [Signal::HUP, Signal::INT, Signal::QUIT].contains(&self.signal)
    }

    /// Whether it went to all processes of this process's group.
    pub(crate) fn went_to_group(self) -> bool {
        // When a terminal is gone, its session's leader alone gets SIGHUP, and the foreground group
        // when the leader has ended.
        let is_leader =
            || ProcessGroup::read(getpid()).is_some_and(|ours| ours.is_session_of(getpid()));
        self.is_from_terminal() && !(self.signal == Signal::HUP && is_leader())
    }

    /// Whether it comes from the leader of this process's group, which may signal this process and
    /// then the group, as `timeout` does.
    fn is_from_group_leader(self) -> bool {
        let ours = || ProcessGroup::read(getpid());
        self.sender.is_some_and(|sender| ours().is_some_and(|ours| ours.group == sender))
    }
}

fn cannot_listen(error: &io::Error) -> Failure {
    Failure::Unavailable(format!("can't listen for signals: {error}"))
}

/// Returns whether this process is in the group that its terminal sends SIGINT and SIGQUIT to.
pub(crate) fn is_in_foreground() -> bool {
    ProcessGroup::read(getpid()).is_some_and(ProcessGroup::is_in_foreground)
}

/// Returns those of some signals that this process was not started to ignore. Correct only before
/// it listens for them.
fn not_ignored(signals: &[Signal]) -> impl Iterator<Item = Signal> {
    let ignored = ignored_signals();
    signals.iter().copied().filter(move |signal| ignored >> (signal.as_raw() - 1) & 1 == 0)
}

/// The signals that this process ignores, one bit each.
#[cfg(target_os = "linux")]
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn ignored_signals() -> u64 {
    0
}

//! The signals that the command takes.

use std::{
    fs::File,
    future::poll_fn,
    io,
    task::{Context, Poll},
};

use rustix::{
    process::{Signal, getpgrp},
    termios::tcgetpgrp,
};
use tokio::signal::unix::{self, SignalKind};

use crate::{exit_code, failure::Failure};

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

/// Signals that this process takes itself. From `listen` on, none of them ends the process.
///
/// A signal that the process was started to ignore, as `nohup` does with SIGHUP, stays ignored,
/// here and in the child. Only Linux shows which signals those are.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Takes these signals from now on.
    pub(crate) fn listen(signals: &[Signal]) -> Result<Self, Failure> {
        let ignored = ignored_signals();
        let taken = signals.iter().filter(|signal| !contains(ignored, **signal));
        let streams = taken.map(|&signal| Ok((signal, stream(signal)?)));
        let streams = streams
            .collect::<io::Result<_>>()
            .map_err(|error| Failure::Unavailable(format!("can't listen for signals: {error}")))?;
        Ok(Self { streams })
    }

    /// Takes one more signal from now on.
    pub(crate) fn add(&mut self, signal: Signal) -> Result<(), Failure> {
        self.streams.extend(Self::listen(&[signal])?.streams);
        Ok(())
    }

    /// Waits for the next signal.
    ///
    /// # Cancellation safety
    /// If this future is dropped, no signal is missed.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        for (signal, stream) in &mut self.streams {
            if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                return Poll::Ready(*signal);
            }
        }
        Poll::Pending
    }
}

/// Returns the failure with which the command ends when a signal has ended its work.
pub(crate) fn failure_of_signal(signal: Signal) -> Failure {
    if signal == Signal::INT && is_in_foreground() {
        Failure::Interrupted
    } else {
        Failure::Reported { code: exit_code::ended_by_signal(signal.as_raw()) }
    }
}

/// Returns whether the terminal sends SIGINT and SIGQUIT to this process group.
pub(crate) fn is_in_foreground() -> bool {
    let foreground = File::open("/dev/tty").map(|terminal| tcgetpgrp(&terminal));
    matches!(foreground, Ok(Ok(group)) if group == getpgrp())
}

fn stream(signal: Signal) -> io::Result<unix::Signal> {
    unix::signal(SignalKind::from_raw(signal.as_raw()))
}

/// The signals that this process ignores, one bit each. Correct only before it listens for them.
#[cfg(target_os = "linux")]
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(not(target_os = "linux"))]
fn ignored_signals() -> u64 {
    0
}

fn contains(mask: u64, signal: Signal) -> bool {
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_bits_counted_from_one() {
        let nohup = 0x1;
        assert!(contains(nohup, Signal::HUP) && !contains(nohup, Signal::INT));
        let usr1_and_pipe = 0x1200;
        assert!(contains(usr1_and_pipe, Signal::USR1) && !contains(usr1_and_pipe, Signal::USR2));
    }
}

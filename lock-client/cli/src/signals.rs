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
        let streams = not_ignored(signals).into_iter().map(|signal| Ok((signal, stream(signal)?)));
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

/// Returns those of some signals that this process was not started to ignore. Correct only before
/// it listens for them.
pub(crate) fn not_ignored(signals: &[Signal]) -> Vec<Signal> {
    let ignored = ignored_signals();
    signals.iter().copied().filter(|signal| !ignored.contains(*signal)).collect()
}

/// Signals, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignalMask(pub(crate) u64);

impl SignalMask {
    pub(crate) fn contains(self, signal: Signal) -> bool {
        self.0 >> (signal.as_raw() - 1) & 1 == 1
    }

    pub(crate) fn insert(&mut self, signal: Signal) {
        self.0 |= 1 << (signal.as_raw() - 1);
    }
}

fn stream(signal: Signal) -> io::Result<unix::Signal> {
    unix::signal(SignalKind::from_raw(signal.as_raw()))
}

/// The signals that this process ignores.
#[cfg(target_os = "linux")]
fn ignored_signals() -> SignalMask {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    SignalMask(mask.unwrap_or_default())
}

#[cfg(not(target_os = "linux"))]
fn ignored_signals() -> SignalMask {
    SignalMask::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_bits_counted_from_one() {
        let nohup = SignalMask(0x1);
        assert!(nohup.contains(Signal::HUP) && !nohup.contains(Signal::INT));
        let usr1_and_pipe = SignalMask(0x1200);
        assert!(usr1_and_pipe.contains(Signal::USR1) && !usr1_and_pipe.contains(Signal::USR2));
        let mut mask = SignalMask::default();
        mask.insert(Signal::USR1);
        mask.insert(Signal::PIPE);
        assert_eq!(mask, usr1_and_pipe);
    }
}

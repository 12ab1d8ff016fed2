//! Signals that the command takes.

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
use tokio::{
    signal::unix::{self, SignalKind},
    task::yield_now,
};

use super::Failure;

/// Those that are forwarded, and that end a wait.
const FORWARDED: [Signal; 7] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
];

/// Signals that are taken as they come, from when this is made: none of them ends the process.
///
/// One that the process was started to ignore, as `nohup` has it ignore SIGHUP, stays ignored, here
/// and in what it starts. Only Linux tells which those are.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Takes the signals that are forwarded.
    pub(crate) fn forwarded() -> Result<Self, Failure> {
        Self::of(&FORWARDED)
    }

    /// Takes SIGINT and SIGTERM.
    pub(crate) fn to_end() -> Result<Self, Failure> {
        Self::of(&[Signal::INT, Signal::TERM])
    }

    fn of(signals: &[Signal]) -> Result<Self, Failure> {
        let ignored = ignored();
        let taken = signals.iter().filter(|signal| !is_in(ignored, **signal));
        let streams = taken.map(|&signal| Ok((signal, listen(signal)?)));
        let streams = streams.collect::<io::Result<_>>().map_err(|error| {
            Failure::Unavailable(format!("signals can't be listened for: {error}"))
        })?;
        Ok(Self { streams })
    }

    /// Takes another one from now on.
    pub(crate) fn listen_for(&mut self, signal: Signal) -> Result<(), Failure> {
        self.streams.extend(Self::of(&[signal])?.streams);
        Ok(())
    }

    /// The next one.
    ///
    /// # Cancellation safety
    /// If this future is dropped, none is missed.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| self.poll(context)).await
    }

    /// Those that have come already, and were not taken.
    pub(crate) async fn come(&mut self) -> Vec<Signal> {
        // What the operating system has told is looked at first.
        yield_now().await;
        let mut come = Vec::new();
        poll_fn(|context| {
            while let Poll::Ready(signal) = self.poll(context) {
                come.push(signal);
            }
            Poll::Ready(())
        })
        .await;
        come
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

/// What a process gives that was ended by a signal, as a shell would tell it.
pub(crate) fn exit_code_of(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// What to end with when a signal has ended the work.
pub(crate) fn ended_by(signal: Signal) -> Failure {
    if signal == Signal::INT && in_the_foreground() {
        Failure::Interrupted
    } else {
        Failure::Told(exit_code_of(signal.as_raw()))
    }
}

/// Whether a terminal sends SIGINT and SIGQUIT to our process group.
pub(crate) fn in_the_foreground() -> bool {
    let foreground = File::open("/dev/tty").map(|terminal| tcgetpgrp(&terminal));
    matches!(foreground, Ok(Ok(group)) if group == getpgrp())
}

fn listen(signal: Signal) -> io::Result<unix::Signal> {
    unix::signal(SignalKind::from_raw(signal.as_raw()))
}

/// The signals that this process ignores, a bit for each. Asked before anything listens.
#[cfg(target_os = "linux")]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(not(target_os = "linux"))]
fn ignored() -> u64 {
    0
}

fn is_in(mask: u64, signal: Signal) -> bool {
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_bits_counted_from_one() {
        let nohup = 0x1;
        assert!(is_in(nohup, Signal::HUP) && !is_in(nohup, Signal::INT));
        let usr1_and_pipe = 0x1200;
        assert!(is_in(usr1_and_pipe, Signal::USR1) && !is_in(usr1_and_pipe, Signal::USR2));
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!((exit_code_of(9), exit_code_of(15), exit_code_of(64)), (137, 143, 192));
    }
}

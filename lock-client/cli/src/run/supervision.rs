//! The watch over a running command and its lease.

use std::{future::pending, os::unix::process::ExitStatusExt, process::ExitStatus};

use rustix::process::Signal;
use tokio::time::sleep;

use super::{
    Running,
    child::{Child, Turn},
    command::Command,
    loss::{Act, Watch},
    status::Event,
};
use crate::{
    Failure,
    signals::{ended_by, exit_code_of},
};
use lock_client::Lease;

/// A lease, and what is to be done when it is lost.
#[derive(Debug)]
pub(super) struct Guard<'a> {
    pub(super) lease: &'a Lease,
    pub(super) watch: Watch,
}

/// What became of a command, with the exit code that tells it.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// It ran.
    Ran(u8),
    /// It ran until SIGINT ended it, which came to us as well.
    Interrupted,
    /// The operating system did not execute it.
    NotRun(u8),
}

impl End {
    /// What `run` ends with, unless the lease was lost.
    pub(super) fn told(self) -> Failure {
        match self {
            Self::Ran(code) | Self::NotRun(code) => Failure::Told(code),
            Self::Interrupted => ended_by(Signal::INT),
        }
    }
}

/// Watches over a command until it ends: sends signals on to it, and does what is to be done when its
/// lease is lost.
pub(super) async fn supervise(
    mut child: Child,
    command: &Command,
    mut guard: Option<&mut Guard<'_>>,
    running: &mut Running,
) -> Result<End, Failure> {
    let mut received = None;
    let mut interrupted = false;
    loop {
        // If we were stopped, the lease comes before the signal that had us go on.
        if let Some(guard) = &mut guard {
            guard.act(&child, running);
        }
        if let Some(signal) = received.take() {
            child.forward(signal);
        }
        tokio::select! {
            biased;
            turn = child.next() => match turn {
                Ok(Turn::Started) => running.status.tell(&Event::Started { pid: child.id() }),
                Ok(Turn::NotRun(error)) => return Ok(running.not_run(command, &error)),
                Ok(Turn::Ended(status)) => {
                    let code = ended(status, running);
                    interrupted |= running.signals.come().await.contains(&Signal::INT);
                    let by_interrupt = status.signal() == Some(Signal::INT.as_raw());
                    return Ok(if interrupted && by_interrupt {
                        End::Interrupted
                    } else {
                        End::Ran(code)
                    });
                }
                Err(error) => {
                    child.signal(Signal::KILL);
                    return Err(Failure::Unavailable(format!("the command can't be watched: {error}")));
                }
            },
            signal = running.signals.next() => {
                interrupted |= signal == Signal::INT;
                received = Some(signal);
            }
            () = something_to_do(guard.as_deref()) => {}
        }
    }
}

fn ended(status: ExitStatus, running: &mut Running) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => {
            running.status.tell(&Event::Exited { code });
            u8::try_from(code).unwrap_or(u8::MAX)
        }
        (None, signal) => {
            let signal = signal.expect("what ends without a code was ended by a signal");
            running.status.tell(&Event::Killed { signal });
            exit_code_of(signal)
        }
    }
}

/// Waits until the lease may have to be looked at.
async fn something_to_do(guard: Option<&Guard<'_>>) {
    let Some(Guard { lease, watch }) = guard else {
        return pending().await;
    };
    let nap = sleep(watch.nap());
    if watch.lost().is_some() {
        return nap.await;
    }
    tokio::select! {
        () = lease.lost() => {}
        () = nap => {}
    }
}

impl Guard<'_> {
    /// Does what is to be done now. Signals come before words.
    fn act(&mut self, child: &Child, running: &mut Running) {
        while let Some(act) = self.watch.look(self.lease.remaining()) {
            match act {
                Act::Lost(reason, signal) => {
                    if let Some(signal) = signal {
                        child.signal(signal);
                    }
                    running.lose(reason);
                }
                Act::Kill => {
                    child.signal(Signal::KILL);
                    running.voice.say("the command did not end in time, and was killed");
                }
            }
        }
    }
}

//! The supervision of a running child and its lease.

use std::{future::pending, os::unix::process::ExitStatusExt, process::ExitStatus};

use lock_client::Lease;
use rustix::process::Signal;
use tokio::time::sleep;

use super::{
    child::{Child, Progress},
    command::{self, Command},
    events::Event,
    lost_lease::{Action, LeaseWatch},
    reporter::Reporter,
};
use crate::{
    exit_code,
    failure::Failure,
    signals::{Signals, failure_of_signal},
};

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

/// Supervises a child until it ends: forwards signals to it, and acts when its lease is lost.
pub(super) async fn supervise(
    mut child: Child,
    command: &Command,
    mut guard: Option<&mut Guard<'_>>,
    reporter: &mut Reporter,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let mut received = None;
    let mut interrupted = false;
    loop {
        // 1. Look at the lease. After SIGSTOP and SIGCONT, this comes before the SIGCONT is
        //    forwarded: a child whose lease has expired must not continue.
        if let Some(guard) = &mut guard {
            guard.act(&child, reporter);
        }
        // 2. Forward the signal of the last round.
        if let Some(signal) = received.take() {
            child.forward(signal);
        }
        // 3. Wait for the child, a signal, or the next look at the lease.
        tokio::select! {
            biased;
            progress = child.next() => match progress {
                Ok(Progress::Started) => reporter.event(&Event::Started { pid: child.id() }),
                Ok(Progress::NotRun(error)) => {
                    let reason = command::exec_error(&command.program, &error);
                    return Ok(End::NotRun(reporter.cannot_run(&reason)));
                }
                Ok(Progress::Ended(status)) => {
                    let code = report_end(status, reporter);
                    interrupted |= signals.pending().await.contains(&Signal::INT);
                    let by_interrupt = status.signal() == Some(Signal::INT.as_raw());
                    return Ok(if interrupted && by_interrupt {
                        End::Interrupted
                    } else {
                        End::Ran { code }
                    });
                }
                Err(error) => {
                    child.signal(Signal::KILL);
                    let error = format!("can't wait for the command: {error}");
                    return Err(Failure::Unavailable(error));
                }
            },
            signal = signals.next() => {
                interrupted |= signal == Signal::INT;
                received = Some(signal);
            }
            () = next_look(guard.as_deref()) => {}
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

impl Guard<'_> {
    /// Does everything that the watch asks for now. The signal comes before the report.
    fn act(&mut self, child: &Child, reporter: &mut Reporter) {
        while let Some(action) = self.watch.next_action(self.lease.remaining()) {
            match action {
                Action::Lost(reason, signal) => {
                    if let Some(signal) = signal {
                        child.signal(signal);
                    }
                    reporter.lost(self.lease.name(), reason);
                }
                Action::Kill => {
                    child.signal(Signal::KILL);
                    reporter.message("the command did not end in time, and was killed");
                }
            }
        }
    }
}

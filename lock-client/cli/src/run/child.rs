//! The command as it runs.

use std::{io, process::ExitStatus};

use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process};
use tokio::{
    process::{self, Command},
    signal::unix::{SignalKind, signal},
};

#[cfg(target_os = "linux")]
use super::bound;
use super::command;
use crate::signals::in_the_foreground;

/// How long to wait for word of how it began from a command that has ended.
#[cfg(target_os = "linux")]
const LAST_WORD: std::time::Duration = std::time::Duration::from_millis(100);

/// The command as it runs: our child, on our stdin, stdout and stderr, and in our process group.
#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    pid: Pid,
    start: Start,
    _reaping: tokio::signal::unix::Signal,
}

#[derive(Debug)]
enum Start {
    #[cfg(target_os = "linux")]
    Awaited(bound::Start),
    #[cfg(not(target_os = "linux"))]
    Untold,
    Over,
}

/// What comes of a command.
#[derive(Debug)]
pub(super) enum Turn {
    /// It runs.
    Started,
    /// The operating system did not execute it.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "the spawn tells it there"))]
    NotRun(io::Error),
    /// It has ended.
    Ended(ExitStatus),
}

impl Child {
    /// Starts a command in an environment.
    pub(super) fn spawn(
        command: &command::Command,
        set_environment: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        // A process that was started to ignore SIGCHLD could not wait for its child.
        let reaping = signal(SignalKind::child())?;
        #[cfg(target_os = "linux")]
        let (mut starting, start) = {
            let (starting, start) = bound::prepare(command)?;
            (starting, Start::Awaited(start))
        };
        #[cfg(not(target_os = "linux"))]
        let (mut starting, start) = {
            let mut starting = Command::new(&command.program);
            starting.arg0(&command.name).args(&command.arguments);
            (starting, Start::Untold)
        };
        set_environment(&mut starting);
        let process = starting.spawn()?;
        let pid = process.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        let pid = pid.expect("a child that nobody has waited for has a process id");
        Ok(Self { process, pid, start, _reaping: reaping })
    }

    /// Tells whether what has failed to start is the command, and not a step before it.
    pub(super) fn is_of_the_command(error: &io::Error) -> bool {
        // The step has the arguments and the environment of the command.
        !cfg!(target_os = "linux") || error.kind() == io::ErrorKind::ArgumentListTooLong
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// What comes next.
    ///
    /// # Cancellation safety
    /// If this future is dropped, nothing is missed.
    pub(super) async fn next(&mut self) -> io::Result<Turn> {
        match &mut self.start {
            Start::Over => Ok(Turn::Ended(self.process.wait().await?)),
            #[cfg(not(target_os = "linux"))]
            Start::Untold => {
                self.start = Start::Over;
                Ok(Turn::Started)
            }
            #[cfg(target_os = "linux")]
            Start::Awaited(start) => {
                let outcome = tokio::select! {
                    biased;
                    outcome = start.outcome(self.pid) => Some(outcome),
                    status = self.process.wait() => {
                        status?;
                        // What it has said is there.
                        let outcome = start.outcome(self.pid);
                        tokio::time::timeout(LAST_WORD, outcome).await.ok()
                    }
                };
                self.start = Start::Over;
                match outcome {
                    Some(Ok(Ok(()))) => Ok(Turn::Started),
                    Some(Ok(Err(error))) => Ok(Turn::NotRun(error)),
                    // It was killed before it began; or can't say whether it has.
                    Some(Err(_)) | None => Ok(Turn::Ended(self.process.wait().await?)),
                }
            }
        }
    }

    /// Sends a signal, if it hasn't ended.
    pub(super) fn signal(&self, signal: Signal) {
        if self.process.id().is_some() {
            // One that has just ended, and is not waited for yet, is still there to take it; one that
            // runs as another user may refuse it, and that can't be helped.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Sends a signal on that came to us, unless it has come to the command as well: SIGINT and
    /// SIGQUIT that a terminal sends go to all who are in its foreground. What came before the command
    /// ran may have come before there was anybody else to take it.
    pub(super) fn forward(&self, received: Signal) {
        let runs = matches!(self.start, Start::Over);
        let by_terminal = matches!(received, Signal::INT | Signal::QUIT);
        let is_with_us = || getpgid(Some(self.pid)) == Ok(getpgrp());
        if !(runs && by_terminal && is_with_us() && in_the_foreground()) {
            self.signal(received);
        }
    }
}

//! The child of `run`: the command as it runs.

use std::{ffi::OsString, io, process::ExitStatus};

use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process};
use tokio::{
    process::{self, Command},
    signal::unix::{SignalKind, signal},
};

use super::command;
#[cfg(target_os = "linux")]
use super::launch;
use crate::signals::is_in_foreground;

/// How long to wait for the launcher's error when the child has ended.
#[cfg(target_os = "linux")]
const ERROR_PATIENCE: std::time::Duration = std::time::Duration::from_millis(100);

/// The command as it runs: it has the stdin, stdout, stderr and process group of this process.
#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    pid: Pid,
    phase: Phase,
    /// Keeps SIGCHLD from being ignored.
    _reaping: tokio::signal::unix::Signal,
}

#[derive(Debug)]
enum Phase {
    /// The launcher runs.
    #[cfg(target_os = "linux")]
    Launching(launch::Launch),
    /// The command runs, and `next` has not reported it.
    #[cfg(not(target_os = "linux"))]
    Spawned,
    /// The command runs, or has ended.
    Running,
}

/// The progress of a child.
#[derive(Debug)]
pub(super) enum Progress {
    /// The command runs.
    Started,
    /// The operating system did not execute the command.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "elsewhere, spawning reports this error")
    )]
    NotRun(io::Error),
    /// The command has ended.
    Ended(ExitStatus),
}

impl Child {
    /// Starts a command, with changes to its environment.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(unused_variables, reason = "only a launcher takes the leading arguments")
    )]
    pub(super) fn spawn(
        command: &command::Command,
        leading: &[OsString],
        set_environment: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        // A process that was started to ignore SIGCHLD could not wait for its child.
        let reaping = signal(SignalKind::child())?;
        #[cfg(target_os = "linux")]
        let (mut starting, phase) = {
            let (starting, launch) = launch::prepare(command, leading)?;
            (starting, Phase::Launching(launch))
        };
        #[cfg(not(target_os = "linux"))]
        let (mut starting, phase) = {
            let mut starting = Command::new(&command.program);
            starting.arg0(&command.name).args(&command.arguments);
            (starting, Phase::Spawned)
        };
        set_environment(&mut starting);
        let process = starting.spawn()?;
        let pid = process.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        let pid = pid.expect("a child that was not waited for has a process id");
        Ok(Self { process, pid, phase, _reaping: reaping })
    }

    /// Returns whether `spawn` failed because of the command, and not because of the launcher.
    pub(super) fn is_error_of_command(error: &io::Error) -> bool {
        // The launcher has the arguments and the environment of the command.
        !cfg!(target_os = "linux") || error.kind() == io::ErrorKind::ArgumentListTooLong
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// Waits for its next progress.
    ///
    /// # Cancellation safety
    /// If this future is dropped, no progress is missed.
    pub(super) async fn next(&mut self) -> io::Result<Progress> {
        match &mut self.phase {
            Phase::Running => Ok(Progress::Ended(self.process.wait().await?)),
            #[cfg(not(target_os = "linux"))]
            Phase::Spawned => {
                self.phase = Phase::Running;
                Ok(Progress::Started)
            }
            #[cfg(target_os = "linux")]
            Phase::Launching(launch) => {
                let executed = tokio::select! {
                    biased;
                    executed = launch.executed(self.pid) => Some(executed),
                    status = self.process.wait() => {
                        status?;
                        // The launcher wrote its error, if it had one, before it ended.
                        let executed = launch.executed(self.pid);
                        tokio::time::timeout(ERROR_PATIENCE, executed).await.ok()
                    }
                };
                self.phase = Phase::Running;
                match executed {
                    Some(Ok(Ok(()))) => Ok(Progress::Started),
                    Some(Ok(Err(error))) => Ok(Progress::NotRun(error)),
                    // The launcher was killed, or its socket failed.
                    Some(Err(_)) | None => Ok(Progress::Ended(self.process.wait().await?)),
                }
            }
        }
    }

    /// Sends a signal, unless it has ended.
    pub(super) fn signal(&self, signal: Signal) {
        if self.process.id().is_some() {
            // The process id is still the child's: it was not waited for yet. A child that runs as
            // another user may be out of reach, and nothing helps against that.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Forwards a signal that this process received, unless the child received it too: a terminal
    /// sends SIGINT and SIGQUIT to all processes in its foreground. A signal that came before the
    /// command ran is forwarded in any case, because there may have been no child to receive it.
    pub(super) fn forward(&self, received: Signal) {
        let runs = matches!(self.phase, Phase::Running);
        let by_terminal = matches!(received, Signal::INT | Signal::QUIT);
        let has_our_group = || getpgid(Some(self.pid)) == Ok(getpgrp());
        if !(runs && by_terminal && has_our_group() && is_in_foreground()) {
            self.signal(received);
        }
    }
}

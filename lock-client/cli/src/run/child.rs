//! The child of `run`: the command as it runs.

#[cfg(not(target_os = "linux"))]
use std::os::unix::process::CommandExt;
use std::{
    ffi::OsString,
    io,
    process::{Command, ExitStatus},
};

use inherited_sigpipe::inherit_sigpipe;
use rustix::process::{Signal, getpgid, getpgrp, kill_process};

#[cfg(target_os = "linux")]
use super::launch;
use super::{
    command,
    descendants::{Descendants, Ticks},
    reaper::Reaper,
};

/// How long to wait for the launcher's error when the child has ended.
#[cfg(target_os = "linux")]
const ERROR_PATIENCE: std::time::Duration = std::time::Duration::from_millis(100);

/// The command as it runs: it has the stdin, stdout, stderr and process group of this process.
#[derive(Debug)]
pub(super) struct Child {
    reaper: Reaper,
    phase: Phase,
    /// The processes that it has started; `None` if they don't keep the lock.
    descendants: Option<Descendants>,
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
    /// The command is over.
    Over(CommandEnd),
}

/// How a command ended.
#[derive(Debug)]
pub(super) enum CommandEnd {
    /// The operating system did not execute it.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "elsewhere, spawning reports this error")
    )]
    NotRun(io::Error),
    /// It ran, and has ended.
    Ended(ExitStatus),
}

impl Child {
    /// Starts a command, with changes to its environment. Its descendants keep the lock, if there
    /// are any.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(unused_variables, reason = "only a launcher takes the leading arguments")
    )]
    pub(super) fn spawn(
        command: &command::Command,
        leading: &[OsString],
        descendants: Option<Descendants>,
        set_environment: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
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
        inherit_sigpipe(&mut starting);
        Ok(Self { reaper: Reaper::spawn(starting)?, phase, descendants })
    }

    /// Returns whether `spawn` failed because of the command, and not because of the launcher.
    pub(super) fn is_error_of_command(error: &io::Error) -> bool {
        // The launcher has the arguments and the environment of the command.
        !cfg!(target_os = "linux") || error.kind() == io::ErrorKind::ArgumentListTooLong
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.reaper.command().as_raw_pid().cast_unsigned()
    }

    /// Waits for its next progress.
    ///
    /// # Cancellation safety
    /// If this future is dropped, no progress is missed.
    pub(super) async fn next(&mut self) -> io::Result<Progress> {
        match &mut self.phase {
            Phase::Running => self.ended().await,
            #[cfg(not(target_os = "linux"))]
            Phase::Spawned => {
                self.phase = Phase::Running;
                Ok(Progress::Started)
            }
            #[cfg(target_os = "linux")]
            Phase::Launching(launch) => {
                let pid = self.reaper.command();
                let executed = tokio::select! {
                    biased;
                    executed = launch.executed(pid) => Some(executed),
                    status = self.reaper.status() => {
                        status?;
                        // The launcher wrote its error, if it had one, before it ended.
                        let executed = launch.executed(pid);
                        tokio::time::timeout(ERROR_PATIENCE, executed).await.ok()
                    }
                };
                self.phase = Phase::Running;
                match executed {
                    Some(Ok(Ok(()))) => Ok(Progress::Started),
                    Some(Ok(Err(error))) => Ok(Progress::Over(CommandEnd::NotRun(error))),
                    // The launcher was killed, or its socket failed.
                    Some(Err(_)) | None => self.ended().await,
                }
            }
        }
    }

    async fn ended(&mut self) -> io::Result<Progress> {
        Ok(Progress::Over(CommandEnd::Ended(self.reaper.status().await?)))
    }

    /// Returns whether any process that the command has started is left. If they are ending, new
    /// ones are ended too.
    pub(super) fn has_descendants(&mut self) -> io::Result<bool> {
        let Some(descendants) = &mut self.descendants else {
            return Ok(false);
        };
        let any = descendants.any_left(&mut self.reaper)?;
        if any {
            descendants.end_new();
        }
        Ok(any)
    }

    /// Waits until a child of this process has ended: the command, or a process that it has started
    /// and whose parent has ended.
    ///
    /// # Cancellation safety
    /// If this future is dropped, no end is missed.
    pub(super) async fn any_ended(&mut self) {
        self.reaper.child_ended().await;
    }

    /// Whether a signal was sent to end the processes that the command has started.
    pub(super) fn descendants_are_ending(&self) -> bool {
        self.descendants.as_ref().is_some_and(Descendants::are_ending)
    }

    /// Notes that this process group received SIGTERM no sooner than a moment.
    pub(super) fn group_received_term(&mut self, received: Ticks) {
        if let Some(descendants) = &mut self.descendants {
            descendants.group_received_term(received);
        }
    }

    /// Describes the processes that are left.
    pub(super) fn describe_descendants(&self) -> String {
        self.descendants.as_ref().map(Descendants::describe).unwrap_or_default()
    }

    /// Sends a signal to the command, unless it has ended.
    pub(super) fn signal(&self, signal: Signal) {
        if !self.reaper.has_ended() {
            // The process id is still the command's: it was not waited for yet. A command that runs
            // as another user may be out of reach, and nothing helps against that.
            let _ = kill_process(self.reaper.command(), signal);
        }
    }

    /// Sends SIGTERM or SIGKILL to the command, and to the processes that it has started.
    pub(super) fn end(&mut self, signal: Signal) {
        self.signal(signal);
        if let Some(descendants) = &mut self.descendants {
            descendants.end(signal, self.reaper.command());
        }
    }

    /// Whether the command is in the process group of this process.
    pub(super) fn has_our_group(&self) -> bool {
        !self.reaper.has_ended() && getpgid(Some(self.reaper.command())) == Ok(getpgrp())
    }
}

//! The child of `run`: the command as it runs.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, ExitStatus},
};

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

use super::{command, descendants::Descendants, reaper::Reaper};
use crate::{process_group::ProcessGroup, signals::is_in_foreground};

/// The command as it runs. It has the stdin, stdout and stderr of this process.
///
/// If this process is in the foreground of its terminal, the command is in the same process group: it
/// reads the terminal, and receives the terminal's signals. Otherwise it has a group of its own, so
/// that a signal to the group of this process reaches it only through this process.
#[derive(Debug)]
pub(super) struct Child {
    reaper: Reaper,
    /// The processes that it has started; `None` if the system does not show them.
    descendants: Option<Descendants>,
}

impl Child {
    /// Starts a command, with changes to its environment.
    pub(super) fn spawn(
        command: &command::Command,
        descendants: Option<Descendants>,
        set_environment: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        let mut starting = Command::new(&command.program);
        starting.arg0(&command.name).args(&command.arguments);
        set_environment(&mut starting);
        if !is_in_foreground() {
            starting.process_group(0);
        }
        inheritance::pass_on_sigpipe(&mut starting);
        #[cfg(target_os = "linux")]
        inheritance::die_with_this_thread(&mut starting);
        Ok(Self { reaper: Reaper::spawn(starting)?, descendants })
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.reaper.command().as_raw_pid().cast_unsigned()
    }

    /// Waits until it has ended.
    ///
    /// # Cancellation safety
    /// If this future is dropped, it can be called again.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.reaper.status().await
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

    /// Sends a signal to the command's own process group, or to the command alone if it is in the
    /// group of another process.
    pub(super) fn signal_group(&self, signal: Signal) {
        let command = self.reaper.command();
        if self.group() == Some(command.as_raw_pid()) {
            let _ = kill_process_group(command, signal);
        } else {
            self.signal(signal);
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
        let ours = ProcessGroup::read(getpid()).map(|ours| ours.group);
        ours.is_some() && self.group() == ours
    }

    /// The process group of the command, unless it has ended.
    fn group(&self) -> Option<i32> {
        let command: Option<Pid> = (!self.reaper.has_ended()).then(|| self.reaper.command());
        Some(ProcessGroup::read(command?)?.group)
    }

    /// Whether the command has stopped because it used the terminal in the background. Says so once
    /// for each time.
    pub(super) fn has_stopped_for_terminal(&mut self) -> bool {
        self.reaper.has_stopped_for_terminal()
    }
}

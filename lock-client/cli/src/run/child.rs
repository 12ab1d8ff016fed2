//! The child of `run`: the command as it runs, and the processes that it has started.

use std::{
    io, mem,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitStatus},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, wait},
};
use tokio::signal::unix::{self, SignalKind, signal};

use super::{command, descendants::Descendants};
use crate::process::{Process, is_in_foreground};

/// The command as it runs. It has the stdin, stdout and stderr of this process.
///
/// If this process is in the foreground of its terminal, the command is in the same process group: it
/// reads the terminal, and receives the terminal's signals. Otherwise it has a group of its own, so
/// that a signal to the group of this process reaches it only through this process.
#[derive(Debug)]
pub(super) struct Child {
    command: Pid,
    /// How the command ended. Then its process id may belong to another process.
    status: Option<ExitStatus>,
    has_stopped: bool,
    /// Whether the command has stopped because it used the terminal in the background.
    has_stopped_for_terminal: bool,
    /// SIGCHLD. A process that was started to ignore it could not wait for its children, and one that
    /// was started with it blocked would not notice their ends.
    child_ended: unix::Signal,
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
        // Before the start, so that no end is missed.
        let child_ended = signal(SignalKind::child())?;
        inheritance::unblock(Signal::CHILD.as_raw())?;
        let command = Pid::from_child(&starting.spawn()?);
        let (status, has_stopped, has_stopped_for_terminal) = (None, false, false);
        Ok(Self {
            command,
            status,
            has_stopped,
            has_stopped_for_terminal,
            child_ended,
            descendants,
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.command.as_raw_pid().cast_unsigned()
    }

    /// How it has ended, if it has.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.reap()?;
        Ok(self.status)
    }

    /// Waits until a child of this process has ended or stopped: the command, or a process that it has
    /// started and whose parent has ended.
    ///
    /// # Cancellation safety
    /// If this future is dropped, no end is missed.
    pub(super) async fn any_ended(&mut self) {
        self.child_ended.recv().await;
    }

    /// Waits for each child that has ended already, so that none stays a zombie. Returns whether there
    /// was one.
    fn reap(&mut self) -> io::Result<bool> {
        let mut any = false;
        let states = WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        loop {
            match wait(WaitOptions::NOHANG | states) {
                Ok(Some((pid, status))) if status.stopped() || status.continued() => {
                    if pid == self.command {
                        let stop = status.stopping_signal();
                        let for_terminal = [Signal::TTIN, Signal::TTOU].map(|by| Some(by.as_raw()));
                        self.has_stopped = stop.is_some();
                        self.has_stopped_for_terminal |= for_terminal.contains(&stop);
                    }
                }
                Ok(Some((pid, status))) => {
                    any = true;
                    if pid == self.command {
                        self.status.get_or_insert(ExitStatus::from_raw(status.as_raw()));
                    }
                }
                Ok(None) | Err(Errno::CHILD) => return Ok(any),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the command has stopped because it used the terminal in the background, since the last
    /// call.
    pub(super) fn has_stopped_for_terminal(&mut self) -> bool {
        mem::take(&mut self.has_stopped_for_terminal)
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.has_stopped || self.status.is_some()
    }

    /// Whether the command can't stop now.
    pub(super) fn is_uninterruptible(&self) -> bool {
        Process::read(self.command).is_some_and(|command| command.is_uninterruptible)
    }

    /// Stops the command, and all that it has started. Returns whether each was reached; `false` if the
    /// system does not show them.
    pub(super) fn stop(&self) -> bool {
        self.descendants.as_ref().is_some_and(Descendants::stop)
    }

    /// Lets the command continue, and all that it has started.
    pub(super) fn resume(&self) {
        match &self.descendants {
            Some(descendants) => descendants.resume(),
            None => drop(self.signal_group(Signal::CONT)),
        }
    }

    /// Returns whether any process that the command has started is left. If they are ending, new
    /// ones are ended too.
    pub(super) fn has_descendants(&mut self) -> io::Result<bool> {
        self.reap()?;
        loop {
            let Some(descendants) = &mut self.descendants else { return Ok(false) };
            if descendants.any_left() {
                descendants.end_new();
                return Ok(true);
            }
            // A parent that ends during the look hides its children. Then it is a zombie now.
            if !self.reap()? {
                return Ok(false);
            }
        }
    }

    /// The signal that was sent to end the processes that the command has started.
    pub(super) fn ending(&self) -> Option<Signal> {
        self.descendants.as_ref()?.ending()
    }

    /// Describes the processes that are left, with the command.
    pub(super) fn describe_descendants(&self) -> String {
        self.descendants.as_ref().map_or("the command".to_owned(), Descendants::describe)
    }

    /// Sends a signal to the command, unless it has ended.
    ///
    /// # Errors
    /// A command that runs as another user may be out of reach.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        // The process id is still the command's if it was not waited for yet.
        if self.status.is_none() { Ok(kill_process(self.command, signal)?) } else { Ok(()) }
    }

    /// Sends a signal to the command's own process group, or to the command alone if it is in the
    /// group of another process.
    pub(super) fn signal_group(&self, signal: Signal) -> io::Result<()> {
        let group = self.command.as_raw_pid();
        // The group lasts as long as it has a process.
        let is_left = || self.descendants.as_ref().is_some_and(|others| others.are_in(group));
        if self.group() == Some(group) || self.status.is_some() && is_left() {
            Ok(kill_process_group(self.command, signal)?)
        } else {
            self.signal(signal)
        }
    }

    /// Sends SIGTERM or SIGKILL to the command, and to the processes that it has started, each once.
    pub(super) fn end(&mut self, signal: Signal) {
        if self.ending() != Some(signal) && self.status.is_none() {
            // Nothing helps against a command that is out of reach.
            match &self.descendants {
                Some(descendants) => drop(descendants.send(signal, self.command)),
                None => drop(self.signal(signal)),
            }
        }
        if let Some(descendants) = &mut self.descendants {
            descendants.end(signal, self.command);
        }
    }

    /// Whether the command is in the process group of this process.
    pub(super) fn has_our_group(&self) -> bool {
        let ours = Process::this().map(|ours| ours.group);
        ours.is_some() && self.group() == ours
    }

    /// The process group of the command, unless it has ended.
    fn group(&self) -> Option<i32> {
        if self.status.is_some() { None } else { Some(Process::read(self.command)?.group) }
    }
}

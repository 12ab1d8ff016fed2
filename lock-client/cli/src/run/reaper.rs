//! Waits for the children of this process.

use std::{
    io, mem,
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, wait},
};
use tokio::signal::unix::{self, SignalKind, signal};

/// Waits for all children of this process: the command, and orphans that it has adopted. None of
/// them stays a zombie.
#[derive(Debug)]
pub(super) struct Reaper {
    command: Pid,
    /// How the command ended.
    status: Option<ExitStatus>,
    /// Whether the command has stopped because it used the terminal in the background.
    stopped: bool,
    /// SIGCHLD. A process that was started to ignore it could not wait for its children, and one that
    /// was started with it blocked would not notice their ends.
    ended: unix::Signal,
}

impl Reaper {
    /// Starts the command.
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        // Before the start, so that no end is missed.
        let ended = signal(SignalKind::child())?;
        inheritance::unblock(Signal::CHILD.as_raw())?;
        let command = Pid::from_child(&command.spawn()?);
        Ok(Self { command, status: None, stopped: false, ended })
    }

    pub(super) fn command(&self) -> Pid {
        self.command
    }

    /// Whether the command has ended. Its process id may then belong to another process.
    pub(super) fn has_ended(&self) -> bool {
        self.status.is_some()
    }

    /// Whether the command has stopped because it used the terminal in the background, since the last
    /// call.
    pub(super) fn has_stopped_for_terminal(&mut self) -> bool {
        mem::take(&mut self.stopped)
    }

    /// Waits until the command has ended.
    ///
    /// # Cancellation safety
    /// If this future is dropped, it can be called again.
    pub(super) async fn status(&mut self) -> io::Result<ExitStatus> {
        loop {
            self.reap()?;
            if let Some(status) = self.status {
                return Ok(status);
            }
            self.child_ended().await;
        }
    }

    /// Waits until a child ends.
    ///
    /// # Cancellation safety
    /// If this future is dropped, no end is missed.
    pub(super) async fn child_ended(&mut self) {
        self.ended.recv().await;
    }

    /// Waits for each child that has ended already, and returns whether there was one.
    pub(super) fn reap(&mut self) -> io::Result<bool> {
        let mut any = false;
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if status.stopped() => {
                    let by = status.stopping_signal();
                    let terminal = [Signal::TTIN, Signal::TTOU];
                    let is_for_terminal = terminal.iter().any(|signal| by == Some(signal.as_raw()));
                    self.stopped |= pid == self.command && is_for_terminal;
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
}

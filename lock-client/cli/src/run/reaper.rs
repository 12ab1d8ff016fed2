//! Waits for the children of this process.

use std::{
    io,
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus},
};

use rustix::{
    io::Errno,
    process::{Pid, WaitOptions, wait},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for all children of this process: the command, and orphans that it has adopted. None of
/// them stays a zombie.
#[derive(Debug)]
pub(super) struct Reaper {
    command: Pid,
    /// How the command ended.
    status: Option<ExitStatus>,
    /// SIGCHLD. A process that was started to ignore it could not wait for its children.
    ended: Signal,
}

impl Reaper {
    /// Starts the command.
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        // Before the start, so that no end is missed.
        let ended = signal(SignalKind::child())?;
        let command = Pid::from_child(&command.spawn()?);
        Ok(Self { command, status: None, ended })
    }

    pub(super) fn command(&self) -> Pid {
        self.command
    }

    /// Whether the command has ended. Its process id may then belong to another process.
    pub(super) fn has_ended(&self) -> bool {
        self.status.is_some()
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
            match wait(WaitOptions::NOHANG) {
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

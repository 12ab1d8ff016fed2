//! Reports of `run`: events on the status descriptor, and messages on stderr.

use fence::{ResourceName, Token};
use serde::Serialize;

use super::status_fd::StatusFd;
use crate::{exit_code, failure::Failure, status::State, stderr, waiting::Listener};

/// A step of `run`. A reader can tell the command's own exit codes 75 and 79 from those of `run`.
/// No event has the holder.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum Event<'a> {
    /// This run has acquired the lock.
    Acquired { resource: &'a str, token: Token, deadline_ms: u64 },
    /// An outer `run` holds the lock already.
    ReEntered { resource: &'a str, token: Token },
    /// Another client holds the lock, and this run has waited for a second.
    Waiting(State<'a>),
    /// Another client holds the lock. The command is not run.
    Busy,
    /// The lock service did not answer, or rejected the request. The command is not run.
    Unavailable { error: &'a str },
    /// A signal ended the wait for the lock. The command is not run.
    Interrupted { signal: i32 },
    /// The command can't be run.
    CannotRun { error: &'a str },
    /// The command runs.
    Started { pid: u32 },
    /// The lease is lost, or can't be renewed in time.
    Lost { reason: Reason },
    /// The command exited.
    Exited { code: i32 },
    /// A signal ended the command.
    Killed { signal: i32 },
    /// The lock was held until now, and is free.
    Released,
    /// The lock was no longer held when it should have been released.
    NotHeld,
    /// The release had no answer. The lock is free when its ttl ends.
    NotReleased { error: &'a str },
}

/// Why a lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reason {
    /// The lock service reported that the lock is free, or has another holder.
    NotOurs,
    /// No renewal succeeded in time. The lock may still be held.
    NotRenewed,
    /// The lock was held for as long as `--max-hold` allows.
    MaxHold,
    /// The deadline has passed.
    Expired,
}

impl Reason {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::NotOurs => "it was deleted, or another client has acquired it",
            Self::NotRenewed => "the lease could not be renewed",
            Self::MaxHold => "it was held for as long as --max-hold allows",
            Self::Expired => "the lease has expired",
        }
    }
}

/// Reports what happens, and never blocks.
#[derive(Debug)]
pub(super) struct Reporter<'a> {
    pub(super) name: &'a ResourceName,
    pub(super) status: Option<StatusFd>,
}

impl Reporter<'_> {
    /// Returns what takes the first report of a wait.
    pub(super) fn listener(&self) -> Listener<'_> {
        let status = self.status.as_ref()?;
        Some(Box::new(|found| status.write(&Event::Waiting(State::new(self.name, found)))))
    }

    pub(super) fn event(&self, event: &Event<'_>) {
        if let Some(status) = &self.status {
            status.write(event);
        }
    }

    /// Reports the event of a failure before the start, and returns the failure.
    pub(super) fn failed(&self, failure: Failure) -> Failure {
        match &failure {
            Failure::Message(exit_code::UNAVAILABLE, error) => {
                self.event(&Event::Unavailable { error });
            }
            Failure::Message(code @ (exit_code::NOT_FOUND | exit_code::NOT_EXECUTABLE), error) => {
                self.event(&Event::CannotRun { error });
                // Before the release, which may take long.
                stderr::print(error);
                return Failure::Reported(*code);
            }
            Failure::Message(exit_code::BUSY, _) => self.event(&Event::Busy),
            Failure::Interrupted(signal) => self.event(&Event::Interrupted { signal: *signal }),
            _ => {}
        }
        failure
    }

    pub(super) fn lost(&self, reason: Reason) {
        self.event(&Event::Lost { reason });
        stderr::print(format!("lock `{}` is lost: {}", self.name, reason.text()));
    }
}

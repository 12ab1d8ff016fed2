//! Reports of `run`: events on the status descriptor, and messages on stderr.

use fence::ResourceName;

use super::{
    command::CannotRun,
    events::{Event, Reason},
    status_fd::StatusFd,
};
use crate::{failure::Failure, stderr::Messages};

/// Reports what happens, and never blocks.
#[derive(Debug)]
pub(super) struct Reporter {
    status: StatusFd,
    messages: Messages,
}

impl Reporter {
    pub(super) fn new(status: StatusFd) -> Self {
        Self { status, messages: Messages::new() }
    }

    /// Reports an event.
    pub(super) fn event(&mut self, event: &Event<'_>) {
        self.status.write(event);
    }

    /// Reports the event of a failure, and returns the failure.
    pub(super) fn failed(&mut self, failure: Failure) -> Failure {
        if let Failure::Unavailable(error) = &failure {
            self.event(&Event::Unavailable { error });
        }
        failure
    }

    /// Prints a message.
    pub(super) fn message(&self, message: impl Into<String>) {
        self.messages.print(message);
    }

    /// Reports that the lease is lost.
    pub(super) fn lost(&mut self, name: &ResourceName, reason: Reason) {
        self.event(&Event::Lost { reason });
        self.message(format!("lock `{name}` is lost: {}", reason.text()));
    }

    /// Reports that the command can't be run, and returns the failure for it.
    pub(super) fn cannot_run(&mut self, reason: &CannotRun) -> Failure {
        self.event(&Event::CannotRun { error: reason.message() });
        self.message(reason.message());
        Failure::Reported { code: reason.exit_code() }
    }
}

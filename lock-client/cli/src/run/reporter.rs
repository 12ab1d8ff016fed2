//! Reports of `run`: events on the status descriptor, and messages on stderr.

use fence::ResourceName;
use lock_client::{Order, backend::Status};

use super::{
    command::CannotRun,
    events::{Event, Reason},
    status_fd::StatusFd,
};
use crate::{failure::Failure, status::State, stderr::Messages, waiting::Waiting};

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

    /// Returns how the wait for a lock is reported.
    pub(super) fn waiting<'a>(&'a mut self, name: &'a ResourceName, order: Order) -> Waiting<'a> {
        let Self { status, messages } = self;
        let listener = status.is_open().then(|| -> Box<dyn FnOnce(&Status)> {
            Box::new(|found| status.write(&Event::Waiting(State::new(name, found))))
        });
        Waiting { messages, order, listener }
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

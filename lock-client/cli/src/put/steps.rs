//! The steps of `put`, as it prints them.

use fence::Token;
use serde::Serialize;

use crate::{
    failure::Failure,
    stdout::{print_unblocked, read_line_unblocked},
};

/// A step. Times are in milliseconds; the holder is redacted.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum Event<'a> {
    /// The lock is acquired.
    Acquired { resource: &'a str, token: Token, holder: String, remaining_ms: u64 },
    /// The lease has a higher token: the storage had seen one above the first, because the lock
    /// service lost its counter.
    Reissued { token: Token },
    /// The storage accepted the fenced read, and rejects older tokens from here on.
    Read { token: Token, version: Option<u64>, value: Option<String> },
    /// The lock is held for a while before the write.
    Holding { token: Token, for_ms: u64 },
    /// The lease is valid. The write is next.
    LeaseChecked { token: Token, remaining_ms: u64 },
    /// The storage accepted the write.
    Written { token: Token, version: u64, value: &'a str },
    /// The storage rejected the token.
    Rejected { token: Token, highest_token: Token, reason: &'a str },
    /// The write may have landed, or may still land.
    OutcomeUnknown { token: Token },
    /// The lock is free again.
    Released,
    /// The lock was no longer held.
    LeaseLost,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Steps {
    /// Without a pause.
    Through,
    /// And waits for a line on stdin after each.
    Stepwise,
}

impl Steps {
    /// Prints an event.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the event is still printed, as soon as stdout takes it.
    pub(super) async fn print(self, event: &Event<'_>) -> Result<(), Failure> {
        print_unblocked(event).await.map_err(Failure::cannot_print)?;
        match self {
            Self::Through => Ok(()),
            Self::Stepwise => match read_line_unblocked().await {
                Ok(0) => Err(Failure::usage("stdin ended before the last step")),
                Ok(_) => Ok(()),
                Err(error) => Err(Failure::usage(format!("can't read stdin: {error}"))),
            },
        }
    }
}

//! The events of `run`, as `--status-fd` reports them.

use fence::Token;
use serde::Serialize;

use crate::status::State;

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
    /// The reason, for a message.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::NotOurs => "it was deleted, or another client has acquired it",
            Self::NotRenewed => "the lease could not be renewed",
            Self::MaxHold => "it was held for as long as --max-hold allows",
            Self::Expired => "the lease has expired",
        }
    }
}

impl Event<'_> {
    /// The event as a JSON line.
    pub(super) fn to_line(&self) -> String {
        let object = serde_json::to_string(self).expect("events are plain JSON");
        format!("{object}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_json_lines() {
        let acquired = Event::Acquired {
            resource: "r",
            token: Token::new(34).unwrap(),
            deadline_ms: 1_800_000_000_000,
        };
        let expected =
            r#"{"event":"acquired","resource":"r","token":34,"deadline_ms":1800000000000}"#;
        assert_eq!(acquired.to_line(), format!("{expected}\n"));
        let lost = Event::Lost { reason: Reason::NotRenewed };
        assert_eq!(lost.to_line(), "{\"event\":\"lost\",\"reason\":\"not-renewed\"}\n");
        let re_entered = Event::ReEntered { resource: "r", token: Token::new(1).unwrap() };
        assert!(re_entered.to_line().starts_with("{\"event\":\"re-entered\","));
    }
}

//! The operations that clients request, and their results.

use std::mem;

use bytes::Bytes;
use fence::{Fence, Rejection, ResourceName, Token};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    memory_budget::with_memory,
    row::{Described, StoredValue},
    sequence::{Numbered, Sequence},
};

/// A request to act on a resource under a token.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// The resource to act on.
    pub(crate) resource: ResourceName,
    /// The token and holder that the client sent. `None` only if the server does not enforce.
    pub(crate) offered: Option<Fence>,
    /// The highest token that the client may offer, unless the fence is about as high.
    pub(crate) ceiling: Token,
    /// The number of a write or delete that may be sent again. It counts only if the offer is accepted.
    pub(crate) numbered: Option<Numbered>,
    /// The action to take if the offer is accepted.
    pub(crate) action: Action,
}

impl Operation {
    /// The size of the value that it writes.
    pub(crate) fn value_bytes(&self) -> usize {
        match &self.action {
            Action::Write { content, .. } => content.bytes.len(),
            Action::Claim | Action::Read | Action::Delete { .. } => 0,
        }
    }
}

/// What an operation does if its offer is accepted. Every action claims first.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Does nothing else than claim.
    Claim,
    /// Reads the value, in the same step as the claim.
    Read,
    /// Sets the value.
    Write {
        /// The new value.
        content: Content,
        /// What must be true of the version.
        condition: Condition,
    },
    /// Removes the value, if there is one.
    Delete {
        /// What must be true of the version.
        condition: Condition,
    },
}

impl Action {
    /// The action's name, for logs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Read => "read",
            Self::Write { .. } => "write",
            Self::Delete { .. } => "delete",
        }
    }
}

/// Opaque bytes and their type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The `Content-Type` that the client sent with the bytes.
    pub content_type: String,
    /// The bytes.
    pub bytes: Bytes,
}

impl Content {
    /// Whether a response can have this `Content-Type`: only with printable ASCII characters.
    pub(crate) fn allows_type(text: &[u8]) -> bool {
        text.iter().all(|byte| matches!(byte, b' '..=b'~'))
    }
}

/// A resource's value, and the fence that it was written with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value itself.
    pub content: Content,
    /// The token and holder that the write offered, if it offered any.
    pub written_with: Option<Fence>,
}

impl Value {
    /// What is known of it without its bytes.
    pub(crate) fn describe(&self) -> Described {
        Described {
            content_type: Some(self.content.content_type.clone()),
            size: self.content.bytes.len() as u64,
            written_with: self.written_with.clone(),
        }
    }

    /// Makes its bytes keep memory until they were sent.
    pub(crate) fn keep_memory(&mut self, memory: OwnedSemaphorePermit) {
        self.content.bytes = with_memory(mem::take(&mut self.content.bytes), memory);
    }
}

/// What a conditional request requires of the version (RFC 9110, section 13).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Condition {
    /// `If-Match`: there is a value, and its version is one of these.
    pub(crate) if_match: Option<Versions>,
    /// `If-None-Match`: there is no value, or its version is none of these.
    pub(crate) if_none_match: Option<Versions>,
}

impl Condition {
    /// Whether the condition is met by the value's version, which is `None` if there is no value.
    pub(crate) fn is_met_by(&self, value_version: Option<u64>) -> bool {
        let matches = |versions: &Versions| match (versions, value_version) {
            (_, None) => false,
            (Versions::Any, Some(_)) => true,
            (Versions::Listed(versions), Some(version)) => versions.contains(&version),
        };
        self.if_match.as_ref().is_none_or(matches)
            && !self.if_none_match.as_ref().is_some_and(matches)
    }
}

/// The versions that a condition names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    /// `*`: every version.
    Any,
    /// The versions in the list.
    Listed(Vec<u64>),
}

/// A decision on an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    /// What the operation did, or why it did nothing.
    pub(crate) outcome: Outcome,
    /// The rejection that the server would have returned if it enforced.
    pub(crate) overruled: Option<Rejection>,
}

/// What an operation did, or why it did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The claim was accepted.
    Claimed {
        /// The resource's version, which a claim does not change.
        version: u64,
    },
    /// The claim was accepted, and the value was read.
    Read {
        /// The resource's version.
        version: u64,
        /// The value, or the description of a large one.
        value: StoredValue,
    },
    /// The value was written.
    Written {
        /// The version of the new value.
        version: u64,
        /// Whether there was no value before.
        created: bool,
    },
    /// The value was removed, or there was none.
    Deleted {
        /// The version after the delete.
        version: u64,
    },
    /// The claim was accepted, but the condition on the version was not met.
    VersionMismatch {
        /// The resource's version.
        version: u64,
    },
    /// The rule rejected the offer, and nothing changed.
    Rejected(Rejection),
    /// The offered token is above the ceiling, and nothing changed.
    TokenTooHigh {
        /// The offered token.
        token: Token,
        /// The highest token that the client may offer for this resource now.
        ceiling: Token,
    },
    /// The write's number was used for another request, and nothing changed.
    SequenceReused {
        /// The number.
        sequence: Sequence,
    },
    /// The write's number is lower than the highest one and has no answer, so nothing changed.
    SequenceTooOld {
        /// The number.
        sequence: Sequence,
        /// The highest number that was used.
        highest: Sequence,
        /// Whether the number may have been used earlier.
        may_be_forgotten: bool,
    },
}

impl Outcome {
    /// Whether the operation was rejected for its token, and so had no effect.
    pub(crate) fn is_rejection(&self) -> bool {
        matches!(self, Self::Rejected(_) | Self::TokenTooHigh { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_the_version_of_an_existing_value() {
        let listed = |versions: &[u64]| Some(Versions::Listed(versions.to_vec()));
        let cases = [
            (None, None, [true, true]),
            (Some(Versions::Any), None, [false, true]),
            (listed(&[2, 3]), None, [false, true]),
            (listed(&[4]), None, [false, false]),
            (listed(&[]), None, [false, false]),
            (None, Some(Versions::Any), [true, false]),
            (None, listed(&[3]), [true, false]),
            (None, listed(&[4]), [true, true]),
            (listed(&[3]), listed(&[3]), [false, false]),
        ];
        for (if_match, if_none_match, [without_value, at_version_3]) in cases {
            let condition = Condition { if_match, if_none_match };
            assert_eq!(condition.is_met_by(None), without_value, "{condition:?}");
            assert_eq!(condition.is_met_by(Some(3)), at_version_3, "{condition:?}");
        }
    }
}

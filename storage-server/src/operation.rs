//! What a client asks of a resource, and what it is told.

use bytes::Bytes;
use fence::{Fence, Refusal, ResourceName};

/// One request to act on a resource under a token.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The resource it acts on.
    pub resource: ResourceName,
    /// The token and holder it was sent with; `None` only where the server does not enforce.
    pub offered: Option<Fence>,
    /// What it does once the offer is accepted.
    pub action: Action,
}

/// What an operation does once its offer is accepted. Each of them claims.
#[derive(Clone, Debug)]
pub enum Action {
    /// Nothing more than advancing the fence.
    Claim,
    /// Reads the value, in the same step as the claim.
    Read,
    /// Sets the value.
    Write {
        /// The new value.
        content: Content,
        /// What must hold of the version.
        condition: Condition,
    },
    /// Removes the value, if there is one.
    Delete {
        /// What must hold of the version.
        condition: Condition,
    },
}

impl Action {
    /// The action's name, for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Read => "read",
            Self::Write { .. } => "write",
            Self::Delete { .. } => "delete",
        }
    }
}

/// Opaque bytes and what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The `Content-Type` that they came with.
    pub content_type: String,
    /// The bytes.
    pub bytes: Bytes,
}

/// A resource's value, and what it was written with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value itself.
    pub content: Content,
    /// The token and holder that its write offered.
    pub written_with: Option<Fence>,
}

/// What a conditional request demands of the version (RFC 9110, section 13).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// `If-Match`: there is a value, of one of these versions.
    pub if_match: Option<Versions>,
    /// `If-None-Match`: there is no value of any of these versions.
    pub if_none_match: Option<Versions>,
}

impl Condition {
    /// Tells whether the condition holds of the version of the value, `None` if there is no value.
    pub fn holds(&self, value_version: Option<u64>) -> bool {
        let among = |versions: &Versions| match (versions, value_version) {
            (_, None) => false,
            (Versions::Any, Some(_)) => true,
            (Versions::These(versions), Some(version)) => versions.contains(&version),
        };
        self.if_match.as_ref().is_none_or(among) && !self.if_none_match.as_ref().is_some_and(among)
    }
}

/// The versions that a condition names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Versions {
    /// `*`: any version.
    Any,
    /// The versions listed.
    These(Vec<u64>),
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// What it did, or why it did nothing.
    pub outcome: Outcome,
    /// The refusal that a server which does not enforce let pass.
    pub overruled: Option<Refusal>,
}

/// What an operation did, or why it did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The claim was accepted.
    Claimed {
        /// The resource's version, which a claim leaves as it is.
        version: u64,
    },
    /// The claim was accepted; this is the value.
    Read {
        /// The resource's version.
        version: u64,
        /// The value, if there is one.
        value: Option<Value>,
    },
    /// The value was written.
    Written {
        /// The version that the write made.
        version: u64,
        /// There was no value before.
        created: bool,
    },
    /// There is no value any more.
    Deleted {
        /// The version that the delete made.
        version: u64,
    },
    /// The claim was accepted, but the condition on the version did not hold.
    VersionMismatch {
        /// The resource's version.
        version: u64,
    },
    /// The rule refused the offer; nothing has changed.
    Refused(Refusal),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_about_the_version_of_an_existing_value() {
        let these = |versions: &[u64]| Some(Versions::These(versions.to_vec()));
        let cases = [
            (None, None, [true, true]),
            (Some(Versions::Any), None, [false, true]),
            (these(&[2, 3]), None, [false, true]),
            (these(&[4]), None, [false, false]),
            (these(&[]), None, [false, false]),
            (None, Some(Versions::Any), [true, false]),
            (None, these(&[3]), [true, false]),
            (None, these(&[4]), [true, true]),
            (these(&[3]), these(&[3]), [false, false]),
        ];
        for (if_match, if_none_match, [without_value, at_version_3]) in cases {
            let condition = Condition { if_match, if_none_match };
            assert_eq!(condition.holds(None), without_value, "{condition:?}");
            assert_eq!(condition.holds(Some(3)), at_version_3, "{condition:?}");
        }
    }
}

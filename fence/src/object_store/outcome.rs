//! Outcomes and errors of the calls of a register.

use std::{error::Error, fmt};

use bytes::Bytes;

use crate::{name::ResourceName, rejection::Rejection, rule::Fence};

/// The outcome of a claim, a write or a delete.
///
/// After an answer that was lost or ambiguous, the register is read back. It has the ids of its last 16
/// writes. A write can only make the version after the version that was read.
///
/// | the register then | outcome |
/// |---|---|
/// | is as this call had read it | the same bytes are sent again, under the same condition |
/// | has this write at the next version | applied |
/// | has another write at the next version | not applied, and never will be: the rule decides again |
/// | has later versions only, or can't be read | unknown |
/// | has an earlier version, none, or lacks a write that this handle has seen | [`RegisterError::Lost`] |
#[derive(Debug)]
#[must_use = "a rejected write was not applied"]
pub enum Outcome<T> {
    /// It was applied.
    Applied(T),
    /// The rule rejected it: stop. The lock was granted to another client since. It was not applied, and
    /// never will be.
    Rejected(Rejection),
    /// It may have been applied, or may still be. Don't send it again as it is: take a higher token,
    /// claim with it, and look at the value. That claim cuts the late write off.
    Unknown(UnknownOutcome),
}

/// A write whose outcome is unknown.
#[derive(Debug)]
pub struct UnknownOutcome {
    pub(super) resource: ResourceName,
    pub(super) source: ::object_store::Error,
}

impl fmt::Display for UnknownOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the outcome for `{}` is unknown: claim it with a higher token, and look at its value",
            self.resource
        )
    }
}

impl Error for UnknownOutcome {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// A register as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Content {
    /// Grows by one with every claim, write and delete. 0 if there is no register yet.
    pub version: u64,
    /// The highest token seen and its holder, unless there is no register yet.
    pub fence: Option<Fence>,
    /// The value, unless there is none or it was deleted.
    pub value: Option<Bytes>,
}

/// Why a call failed. Except for [`Lost`](Self::Lost), the call has changed nothing, and will not.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegisterError {
    /// The store failed before a change was sent, or rejected the change each time it was sent: retry, unless
    /// the source says that this won't help, such as missing rights.
    Store {
        /// The resource.
        resource: ResourceName,
        /// The store's error.
        source: ::object_store::Error,
    },
    /// The store has no conditional writes, so it can keep no fence: use another store.
    NoConditionalWrites {
        /// The resource.
        resource: ResourceName,
        /// The store's error.
        source: ::object_store::Error,
    },
    /// Other clients were faster each time: retry.
    Contended {
        /// The resource.
        resource: ResourceName,
    },
    /// The register is gone, older than this handle has seen it, or another one: someone has deleted or
    /// restored it. Its fence is no longer what it was: stop all clients, and restore the register, or raise the
    /// lock's counter above all tokens that were granted.
    ///
    /// A change that this call sent may have been applied before that.
    Lost {
        /// The resource.
        resource: ResourceName,
        /// The version that this handle has seen.
        seen: u64,
    },
    /// The object is no register.
    Malformed {
        /// The resource.
        resource: ResourceName,
        /// What is wrong with it.
        reason: String,
    },
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store { resource, .. } => write!(f, "the store of `{resource}` failed"),
            Self::NoConditionalWrites { resource, .. } => write!(
                f,
                "the store of `{resource}` has no conditional writes (If-Match, If-None-Match), so it can \
                 keep no fence"
            ),
            Self::Contended { resource } => {
                write!(f, "other clients kept changing `{resource}`: retry")
            }
            Self::Lost { resource, seen } => write!(
                f,
                "the register of `{resource}` was lost: this client has seen version {seen}, and it \
                 is gone, older, or another one now"
            ),
            Self::Malformed { resource, reason } => {
                write!(f, "the object of `{resource}` is no register: {reason}")
            }
        }
    }
}

impl Error for RegisterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store { source, .. } | Self::NoConditionalWrites { source, .. } => Some(source),
            Self::Contended { .. } | Self::Lost { .. } | Self::Malformed { .. } => None,
        }
    }
}

//! Why a node's answer does not count.

use redis::RedisError;

use crate::redis::{InvalidReply, is_passing};

/// Why a node's answer does not count. The node's address is added where the error is reported.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum NodeError {
    /// The node did not answer. It may have carried out the request.
    #[error("{0}")]
    NoAnswer(String),
    /// The node has no vote, or it rejected.
    #[error("{0}")]
    NoVote(String),
    /// The node votes for another roster: the members have changed.
    #[error("{0}")]
    OtherRoster(String),
}

impl NodeError {
    pub(super) fn timed_out() -> Self {
        Self::NoAnswer("no answer in time".to_owned())
    }
}

impl From<RedisError> for NodeError {
    fn from(error: RedisError) -> Self {
        match (error.code(), error.detail()) {
            (Some("OTHERROSTER"), Some(reason)) => Self::OtherRoster(reason.to_owned()),
            // These codes are our scripts' own, and their text is complete.
            (Some("NOVOTE" | "FENCED"), Some(reason)) => Self::NoVote(reason.to_owned()),
            _ if is_passing(&error) => Self::NoAnswer(error.to_string()),
            _ => Self::NoVote(error.to_string()),
        }
    }
}

impl From<InvalidReply> for NodeError {
    fn from(invalid: InvalidReply) -> Self {
        Self::NoVote(invalid.to_string())
    }
}

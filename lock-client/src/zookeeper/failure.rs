//! Why a request to ZooKeeper failed, and what that means for a caller.

use std::time::Duration;

use zookeeper_client::Error;

use crate::backend::BackendError;

#[derive(Debug)]
pub(super) enum Failure {
    /// The node, or the node above it, does not exist. Nothing was changed.
    NoNode,
    /// The node exists already. Nothing was changed.
    NodeExists,
    /// The node has another version. Nothing was changed.
    BadVersion,
    /// The session has expired, or was closed. Nothing was changed.
    Expired,
    /// All members that answered shorten the session to this time. They have done so.
    Shortened {
        session_ms: u64,
        granted_ms: u64,
    },
    /// The member closed the connection before it answered. It may have no place for another one.
    Closed(BackendError),
    Other(BackendError),
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoNode => Self::Unavailable("a node was deleted meanwhile".into()),
            Failure::NodeExists => Self::Unavailable("a node was created meanwhile".into()),
            Failure::BadVersion => Self::Unavailable("a node was changed meanwhile".into()),
            Failure::Expired => Self::Unavailable("the session has expired".into()),
            Failure::Shortened { session_ms, granted_ms } => {
                let reason = format!(
                    "the session lasts {session_ms} ms, and the longest one of this ZooKeeper \
                     {granted_ms} ms"
                );
                Self::Invalid(reason.into())
            }
            Failure::Closed(error) | Failure::Other(error) => error,
        }
    }
}

impl Failure {
    /// Reports the failure of a request that follows a change: a rejection would say that nothing was
    /// changed.
    pub(super) fn after_a_change(self) -> Self {
        match self {
            Self::Other(error) => Self::Other(error.after_a_change()),
            failure => failure,
        }
    }

    pub(super) fn unavailable(server: &str, reason: &str) -> Self {
        Self::Other(BackendError::Unavailable(format!("{server}: {reason}").into()))
    }

    pub(super) fn closed(server: &str, reason: &str) -> Self {
        Self::Closed(BackendError::Unavailable(format!("{server}: {reason}").into()))
    }

    pub(super) fn silent(server: &str, limit: Duration) -> Self {
        Self::unavailable(server, &format!("no answer within {} ms", limit.as_millis()))
    }

    pub(super) fn rejected(server: &str, reason: &str) -> Self {
        Self::Other(BackendError::Rejected(format!("{server}: {reason}").into()))
    }

    /// Reports a node that holds what this crate never writes.
    pub(super) fn foreign() -> Self {
        Self::Other(BackendError::Rejected("a node of the lock holds nothing of ours".into()))
    }

    pub(super) fn new(server: &str, error: Error) -> Self {
        let rejected = |reason| Self::rejected(server, reason);
        match error {
            Error::NoNode => Self::NoNode,
            Error::NodeExists => Self::NodeExists,
            Error::BadVersion => Self::BadVersion,
            Error::SessionExpired => Self::Expired,
            Error::NoAuth => rejected("no permission: the nodes belong to another user"),
            Error::AuthFailed => rejected("the login failed, or must not be by password"),
            Error::InvalidAcl => rejected("the server does not take the access list of our nodes"),
            Error::QuotaExceeded => rejected("the quota of the nodes is exceeded"),
            Error::NoChildrenForEphemerals => rejected("a node above ours is ephemeral"),
            Error::Unimplemented => rejected("the server is older than ZooKeeper 3.6"),
            Error::BadArguments(_) | Error::MarshallingError => {
                rejected(&format!("the request is not valid: {error}"))
            }
            error => Self::unavailable(server, &error.to_string()),
        }
    }
}

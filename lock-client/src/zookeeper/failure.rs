//! Why a request to ZooKeeper failed, and what that means for a caller.

use crate::backend::BackendError;

/// A request that failed.
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
    Shortened { session_ms: u64, granted_ms: u64 },
    /// Anything else.
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
            Failure::Other(error) => error,
        }
    }
}

/// The codes of
/// [`KeeperException`](https://zookeeper.apache.org/doc/r3.8.4/apidocs/zookeeper-server/org/apache/zookeeper/KeeperException.Code.html)
/// that need a decision.
const OK: i32 = 0;
const NO_NODE: i32 = -101;
const NO_AUTH: i32 = -102;
const BAD_VERSION: i32 = -103;
const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
const NODE_EXISTS: i32 = -110;
const SESSION_EXPIRED: i32 = -112;
const INVALID_ACL: i32 = -114;
const AUTH_FAILED: i32 = -115;
const SESSION_CLOSED_REQUIRE_AUTH: i32 = -124;
const QUOTA_EXCEEDED: i32 = -125;
const UNIMPLEMENTED: i32 = -6;
const BAD_ARGUMENTS: i32 = -8;
/// In a transaction, an operation behind the failed one.
const RUNTIME_INCONSISTENCY: i32 = -2;

impl Failure {
    /// Reports the failure of a request that follows a change: a rejection would say that nothing was
    /// changed.
    pub(super) fn after_a_change(self) -> Self {
        match self {
            Self::Other(error) => Self::Other(error.after_a_change()),
            failure => failure,
        }
    }

    /// Reports that there was no answer, or no whole one.
    pub(super) fn unavailable(server: &str, reason: &str) -> Self {
        Self::Other(BackendError::Unavailable(format!("{server}: {reason}").into()))
    }

    /// Reports a message that is not one of ZooKeeper's.
    pub(super) fn malformed() -> Self {
        Self::Other(BackendError::Unavailable("the answer is not one of ZooKeeper's".into()))
    }

    /// Reports a node that holds what this crate never writes.
    pub(super) fn foreign() -> Self {
        Self::Other(BackendError::Rejected("a node of the lock holds nothing of ours".into()))
    }

    /// Converts the code of an answer.
    pub(super) fn check(server: &str, code: i32) -> Result<(), Self> {
        let rejected = |reason: &str| {
            Self::Other(BackendError::Rejected(format!("{server}: {reason}").into()))
        };
        Err(match code {
            OK => return Ok(()),
            NO_NODE => Self::NoNode,
            NODE_EXISTS => Self::NodeExists,
            BAD_VERSION => Self::BadVersion,
            SESSION_EXPIRED => Self::Expired,
            NO_AUTH => rejected("no permission: the nodes belong to another user"),
            AUTH_FAILED => rejected("the login failed"),
            SESSION_CLOSED_REQUIRE_AUTH => rejected("a login is required that is not by password"),
            INVALID_ACL => rejected("the server does not take the access list of our nodes"),
            QUOTA_EXCEEDED => rejected("the quota of the nodes is exceeded"),
            NO_CHILDREN_FOR_EPHEMERALS => rejected("a node above ours is ephemeral"),
            UNIMPLEMENTED => rejected("the server is older than ZooKeeper 3.6"),
            BAD_ARGUMENTS => rejected("the server does not take our request"),
            _ => Self::unavailable(server, &format!("error {code} of ZooKeeper")),
        })
    }

    /// Whether the code is of an operation that did not fail itself.
    pub(super) fn is_of_another_operation(code: i32) -> bool {
        code == OK || code == RUNTIME_INCONSISTENCY
    }
}

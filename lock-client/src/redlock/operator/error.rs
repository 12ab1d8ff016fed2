//! The errors of an operator.

use crate::{redis::keys::Keys, redlock::peer::PeerError};

/// Why an operation on a cluster failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// The request is invalid. It will not succeed later.
    #[error("{0}")]
    Invalid(String),
    /// The nodes are not in the state that the operation needs. It may succeed later.
    #[error("{0}")]
    Unavailable(String),
}

impl From<PeerError> for OperatorError {
    fn from(error: PeerError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// What to do when too few of the nodes that know the issued tokens are left.
pub(super) fn how_to_start_anew() -> String {
    format!(
        "stop all clients, and wait for the longest ttl; delete the keys {} on the restarted \
         nodes, whose counters may be old, and {} on the others; then run `lock-client node init`: \
         missing counters start at the client's clock",
        Keys::ALL,
        Keys::NODE
    )
}

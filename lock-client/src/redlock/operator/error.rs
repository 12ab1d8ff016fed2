//! The errors of an operator.

use super::peer::{Peer, PeerError};

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

impl OperatorError {
    /// The error that a server is not fit to be a node, if it is not.
    pub(super) fn if_unfit(peer: &Peer) -> Result<(), Self> {
        match peer.unfit {
            None => Ok(()),
            Some(unfit) => Err(Self::Invalid(format!(
                "{} is not fit to be a node: {}",
                peer.address,
                unfit.reason()
            ))),
        }
    }
}

impl From<PeerError> for OperatorError {
    fn from(error: PeerError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

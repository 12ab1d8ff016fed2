//! The two kinds of requests to nodes, and how long each is worth waiting for.

use std::time::Duration;

/// The kind of a request to a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// A vote. It is useful only if it arrives soon.
    Vote,
    /// The release of a lock that the node has granted, or may still grant. It is useful however
    /// late it arrives.
    Release,
}

impl Request {
    /// How long all nodes together have for their answers.
    pub(super) fn timeout(self) -> Duration {
        match self {
            Self::Vote => Duration::from_millis(500),
            Self::Release => Duration::from_secs(2),
        }
    }
}

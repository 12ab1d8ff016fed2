//! What a watcher of a cluster sees and does.

use std::{fmt, time::Duration};

use super::counters::CopiedCounters;

/// What a [`Watcher`](super::Watcher) saw or did. Nodes are named by their addresses, without
/// passwords. It displays as a line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// Another process takes a member's seat. It is admitted after the wait.
    Waiting {
        /// The node.
        node: String,
        /// The time until everything has expired that the process before may have voted for.
        remaining: Duration,
    },
    /// A node was admitted.
    Admitted {
        /// The node.
        node: String,
        /// The counters that were copied to it.
        copied: CopiedCounters,
    },
    /// A node has no vote, and gets none now. The watcher tries again.
    LeftAlone {
        /// The node.
        node: String,
        /// The reason.
        reason: String,
    },
    /// A node that did not answer answers again.
    AnswersAgain {
        /// The node.
        node: String,
    },
    /// Fewer nodes than a majority may vote. No node can be admitted, and a person must decide.
    TooFewVoters {
        /// The reason, and what to do.
        reason: String,
    },
    /// A majority may vote again.
    MajorityVotes,
    /// Another watcher works. This one goes on when the other has ended.
    StandsBy,
}

impl fmt::Display for WatchEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { node, remaining } => write!(
                f,
                "{node} has another process. It votes in {remaining:.1?}, when all earlier locks have \
                 expired."
            ),
            Self::Admitted { node, copied } => {
                write!(f, "{node} votes; {} of its counters were raised", copied.raised)
            }
            Self::LeftAlone { node, reason } => write!(f, "{node} is left alone: {reason}"),
            Self::AnswersAgain { node } => write!(f, "{node} answers again"),
            Self::TooFewVoters { reason } => f.write_str(reason),
            Self::StandsBy => f.write_str("another watcher works, and this one stands by"),
            Self::MajorityVotes => f.write_str("a majority of the nodes votes again"),
        }
    }
}

//! What a watcher of a cluster sees and does.

use std::{fmt, time::Duration};

use super::{counters::CopiedCounters, view::State};

/// What a [`Watcher`](super::Watcher) saw or did. Nodes are named by their addresses, without
/// passwords. It displays as a line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// A process without a vote was seen. It is admitted after the wait.
    Waiting {
        /// The node.
        node: String,
        /// Why it has no vote.
        state: State,
        /// The time until everything has expired that the node may have voted for.
        remaining: Duration,
    },
    /// A node was admitted.
    Admitted {
        /// The node.
        node: String,
        /// The counters that were copied to it.
        copied: CopiedCounters,
    },
    /// A node was not admitted. The watcher tries again.
    NotAdmitted {
        /// The node.
        node: String,
        /// The reason.
        reason: String,
    },
    /// A node is left alone: it does not answer, or belongs to another cluster.
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
}

impl fmt::Display for WatchEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { node, state: State::Restarted, remaining } => write!(
                f,
                "{node} restarted. It votes again in {remaining:.1?}, when all its earlier locks \
                 have expired."
            ),
            Self::Waiting { node, state: State::NoCluster, remaining } => write!(
                f,
                "{node} has lost its data, or is new. It votes in {remaining:.1?}, when all earlier \
                 locks have expired."
            ),
            Self::Waiting { node, remaining, .. } => write!(
                f,
                "{node} has no vote. It votes in {remaining:.1?}, when all earlier locks have \
                 expired."
            ),
            Self::Admitted { node, copied } => {
                write!(f, "{node} votes; {} of its counters were raised", copied.raised)
            }
            Self::NotAdmitted { node, reason } => write!(f, "{node} is not admitted yet: {reason}"),
            Self::LeftAlone { node, reason } => write!(f, "{node} is left alone: {reason}"),
            Self::AnswersAgain { node } => write!(f, "{node} answers again"),
            Self::TooFewVoters { reason } => f.write_str(reason),
            Self::MajorityVotes => f.write_str("a majority of the nodes votes again"),
        }
    }
}

//! The operation of a cluster: starting it, admitting nodes, and inspecting it.

mod counters;
mod courtesy;
mod error;
mod peer;
mod report;
mod servers;
mod start;
mod survey;
mod trial;
mod view;
mod watcher;

use std::{fmt, time::Duration};

use fence::ResourceName;

use self::survey::Replaced;
use super::node_urls::{InvalidNodes, NodeUrl};
use crate::{Ttl, redis::TimeLimits};

pub use self::{
    counters::CopiedCounters,
    error::OperatorError,
    report::WatchEvent,
    view::{Cluster, Inspection, View},
    watcher::Watcher,
};
pub use super::state::State;

/// The operator of a cluster. Unlike [`Redlock`](super::Redlock), it also talks to nodes that may
/// not vote.
pub struct Operator {
    /// The servers that were named.
    named: Vec<NodeUrl>,
    limits: TimeLimits,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.named.iter().map(|url| &url.address)).finish()
    }
}

impl Operator {
    /// Creates an operator of the cluster that has these nodes. It must be given the URLs of all
    /// nodes to start a cluster, and of a majority otherwise.
    ///
    /// # Errors
    /// [`InvalidNodes`] in the cases of [`Redlock::open`](super::Redlock::open).
    pub fn new<U: AsRef<str>>(urls: &[U]) -> Result<Self, InvalidNodes> {
        Ok(Self { named: NodeUrl::parse_all(urls)?, limits: TimeLimits::default() })
    }

    /// Waits up to ten times this long for each answer of a node, and four times for a connection.
    /// It is half a second by default.
    #[must_use]
    pub fn answer_within(self, timeout: Duration) -> Self {
        Self { limits: TimeLimits::new(timeout), ..self }
    }

    /// Starts a cluster of all nodes. Completes a start that was interrupted. `max_ttl` is the
    /// longest ttl that the cluster will grant; admissions wait that long.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if two URLs lead to one server; if a node is a replica, has one,
    ///   evicts keys or is part of a Redis Cluster; or if the cluster was started with another
    ///   `max_ttl`.
    /// - [`OperatorError::Unavailable`] if a node does not answer, belongs to a cluster already, or
    ///   is being prepared by another operator at the same time.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the cluster may be started in part. Call it again.
    pub async fn start_cluster(&self, max_ttl: Ttl) -> Result<Cluster, OperatorError> {
        Ok(start::start_cluster(self, max_ttl, Replaced::Nothing, drop).await?.0)
    }

    /// Starts a cluster in place of another one, whose number of nodes may differ, with counters at
    /// or above the highest of a majority of the other's voters. Takes their votes, and then waits for
    /// the longest ttl of both; `report` gets that time. The two may have nodes in common. Also returns
    /// what was copied: nothing if the start only completes an earlier one.
    ///
    /// # Errors
    /// As for [`start_cluster`](Self::start_cluster). Also [`OperatorError::Unavailable`] if fewer than
    /// a majority of the other's voters answer.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the old cluster may have no votes any more. Call it again.
    pub async fn start_from(
        &self,
        old: &Self,
        max_ttl: Ttl,
        report: impl FnOnce(Duration),
    ) -> Result<(Cluster, CopiedCounters), OperatorError> {
        start::start_cluster(self, max_ttl, Replaced::Cluster(old), report).await
    }

    /// Starts a cluster again that has lost its majority: the one with this id, which
    /// [`inspect`](Self::inspect) shows, or `none` if no data are left. Takes the votes of the voters that
    /// are left, and waits for the longest ttl; `report` gets that time. Then all counters are at or above
    /// the highest of all members that answer, and the clock. No server that is left out must come back,
    /// because it may still vote in the old cluster. Also returns what was copied, as
    /// [`start_from`](Self::start_from) does.
    ///
    /// # Errors
    /// As for [`start_cluster`](Self::start_cluster). Also [`OperatorError::Invalid`] if no data name that
    /// cluster; if a majority may vote; or if a member that is not among these answers, and may vote.
    /// [`OperatorError::Unavailable`] if a member answered before the wait, and does not answer after it.
    ///
    /// # Cancellation safety
    /// If this future is dropped, nodes may have lost their votes. Call it again.
    pub async fn start_again(
        &self,
        cluster: &str,
        max_ttl: Ttl,
        report: impl FnOnce(Duration),
    ) -> Result<(Cluster, CopiedCounters), OperatorError> {
        start::start_cluster(self, max_ttl, Replaced::LostMajority(cluster), report).await
    }

    /// Lets the process at this URL vote, whose password may be left out: a member's that has
    /// restarted, or that of a server in place of a member. Waits for the longest ttl; reports each
    /// step. Finishes what another operator has begun. Returns what was copied to the process; nothing
    /// if it votes already.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if there is no such member, or if the server is not fit, as for
    ///   [`start_cluster`](Self::start_cluster).
    /// - [`OperatorError::Unavailable`] if the server does not answer or belongs to another cluster,
    ///   or if fewer than a majority of other nodes may vote.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the process may have a seat and no vote. Call it again.
    pub async fn admit(
        &self,
        node: &str,
        instead_of: Option<&str>,
        report: impl FnMut(WatchEvent),
    ) -> Result<CopiedCounters, OperatorError> {
        let node = self.parse(node)?;
        let instead_of = instead_of.map(|old| self.parse(old)).transpose()?;
        Watcher::admit(self, node, instead_of, report).await
    }

    /// Watches all nodes, and admits each one that restarts, once everything has expired that its
    /// process before may have voted for.
    pub fn watch(&self) -> Watcher<'_> {
        Watcher::new(self)
    }

    /// Inspects all nodes, but not their counters. A node that does not answer is
    /// [`Unreachable`](State::Unreachable). Tries a vote on each node that has one, on a name that no
    /// client uses.
    pub async fn inspect(&self) -> Inspection {
        view::inspect(self).await
    }

    /// Inspects all nodes and their counters.
    ///
    /// # Errors
    /// [`OperatorError::Unavailable`] if a node stops answering meanwhile.
    pub async fn inspect_with_counters(&self) -> Result<Inspection, OperatorError> {
        view::inspect_with_counters(self).await
    }

    /// Tries all scripts on the node at this address, which may vote, on a lock of this name: grants,
    /// seals, renews, raises, reads, releases and joins it. With several nodes, a failure on one of them
    /// would go unnoticed. No other node is asked.
    ///
    /// # Errors
    /// The step that failed, and the reason.
    pub async fn try_lock_on(
        &self,
        node: &str,
        name: &ResourceName,
        ttl: Ttl,
    ) -> Result<(), String> {
        trial::try_lock(self, node, name, ttl).await
    }
}

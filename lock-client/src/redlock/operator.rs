//! The operation of a cluster: starting it, admitting nodes, and inspecting it.

mod admission;
mod ballot;
mod candidate;
mod change;
mod counters;
mod error;
mod fitness;
mod places;
mod start;
mod trial;
mod view;
mod watch_event;
mod watcher;

use std::time::Duration;

use fence::ResourceName;

use self::places::Places;
use super::node_urls::InvalidNodes;
use crate::{Ttl, redis::TimeLimits};

pub use self::{
    admission::{Admission, PendingAdmission},
    counters::CopiedCounters,
    error::OperatorError,
    view::{Cluster, Inspection, State, View},
    watch_event::WatchEvent,
    watcher::Watcher,
};
pub use super::persistence::Persistence;

/// The operator of a cluster. Unlike [`Redlock`](super::Redlock), it also talks to nodes that may
/// not vote.
#[derive(Debug)]
pub struct Operator {
    places: Places,
}

impl Operator {
    /// Creates an operator of the cluster that has these nodes. It must be given the URLs of all
    /// nodes.
    ///
    /// # Errors
    /// [`InvalidNodes`] in the cases of [`Redlock::open`](super::Redlock::open).
    pub fn new<U: AsRef<str>>(urls: &[U]) -> Result<Self, InvalidNodes> {
        Ok(Self { places: Places::new(urls)? })
    }

    /// Waits up to ten times this long for each answer of a node, and four times for a connection.
    /// It is half a second by default.
    #[must_use]
    pub fn answer_within(self, timeout: Duration) -> Self {
        Self { places: self.places.answer_within(TimeLimits::new(timeout)) }
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
        start::start_cluster(&self.places, max_ttl).await
    }

    /// Requests the admission of the node at this URL, whose password may be left out. Finishes a
    /// change of the members first, if it is half done. A node without a vote only gets a mark before
    /// [`PendingAdmission::finish`].
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if the URL names none of the cluster's nodes, if the node is not
    ///   fit, as for [`start_cluster`](Self::start_cluster), or if two URLs lead to one server.
    /// - [`OperatorError::Unavailable`] if the node does not answer or belongs to another cluster, or
    ///   if fewer than a majority of other nodes may vote. Also if a change of the members is half done
    ///   and can't be finished.
    ///
    /// # Cancellation safety
    /// It is safe to drop this future.
    pub async fn request_admission(&self, node: &str) -> Result<Admission<'_>, OperatorError> {
        Admission::request(&self.places, node).await
    }

    /// Changes the members: adds nodes, and removes others. Returns the addresses of the new members
    /// once the change is decided. [Watch](Self::watch) the nodes then, until the added ones are
    /// admitted. From then on, this operator also knows the added nodes.
    ///
    /// Running leases continue, if they have a majority of the new members. Until the added nodes are
    /// admitted, a majority of the new members must be old ones that answer and do not restart: when
    /// three nodes become five, all three.
    ///
    /// If it was interrupted, call it again. If another change is half done, it is finished
    /// instead.
    ///
    /// After an error, the change may be half done, and may even be decided: a member may have
    /// accepted it although its answer was lost. The error says so. Call it again then, or
    /// [watch](Self::watch) the nodes, which finishes the change.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if there would be fewer members than now, or an even number; if
    ///   an added node is not fit, or in another cluster; or if two URLs
    ///   lead to one server.
    /// - [`OperatorError::Unavailable`] if no majority of the old members votes, if an added node
    ///   does not answer, or if another change was finished instead.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the change may be decided, or half done. Call it again.
    pub async fn change_members<U: AsRef<str>>(
        &mut self,
        add: &[U],
        remove: &[U],
    ) -> Result<Vec<String>, OperatorError> {
        change::change_members(&mut self.places, add, remove).await
    }

    /// Watches all nodes, and admits each one that restarts, once everything has expired that it may
    /// have voted for. Finishes a change of the members that is half done.
    pub fn watch(&self) -> Watcher<'_> {
        Watcher::new(&self.places)
    }

    /// Inspects all nodes, but not their counters. A node that does not answer is
    /// [`Unreachable`](State::Unreachable).
    pub async fn inspect(&self) -> Inspection {
        view::inspect(&self.places).await
    }

    /// Inspects all nodes and their counters.
    ///
    /// # Errors
    /// [`OperatorError::Unavailable`] if a node stops answering meanwhile.
    pub async fn inspect_with_counters(&self) -> Result<Inspection, OperatorError> {
        view::inspect_with_counters(&self.places).await
    }

    /// Tries all scripts on the node at this address, which may vote, on a lock of this name: grants,
    /// seals, renews, raises, reads, releases and joins it. With several nodes, a failure on one of them would go
    /// unnoticed. No other node is asked.
    ///
    /// # Errors
    /// The step that failed, and the reason.
    pub async fn try_lock_on(
        &self,
        node: &str,
        name: &ResourceName,
        ttl: Ttl,
    ) -> Result<(), String> {
        trial::try_lock(&self.places, node, name, ttl).await
    }
}

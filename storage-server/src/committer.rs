//! Group commit: many operations in one durable transaction.
//!
//! Handlers [queue](queue::Queue::submit) an operation and wait for its decision. The batch lane
//! takes the queued operations as one batch and loads the rows that they act on. It applies the
//! operations in order of arrival, and has the store make the changed rows durable. Only then are
//! the operations answered. Several operations on one resource become one change of its row, so a
//! hot resource does not cost a commit per write.
//!
//! If a rival, such as another server on the same database, has changed a row meanwhile, its
//! operations are loaded and decided again. A resource moves to the blocked lane if another
//! transaction locks its row, or if rivals are always faster. There it delays no other resource,
//! and its operations are decided under the row's lock.
//!
//! A store without transactions changes each resource by itself. There, each resource has a lane of its
//! own while it has operations, and so has each resource of transactions, which have only one there.
//!
//! A transaction on several resources goes through the transaction lane. There, the rows of all
//! transactions of a batch are locked, also those that are only compared, until the batch is durable.

mod batch_lane;
mod blocked_lane;
mod failure;
mod folded;
mod group_commit;
mod guesses;
pub(crate) mod job;
mod oldest;
pub(crate) mod queue;
mod resource_lanes;
mod transaction_lane;

use std::sync::Arc;

use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

use self::{
    batch_lane::commit_batches,
    blocked_lane::{BlockedLane, commit_blocked},
    group_commit::GroupCommit,
    oldest::Oldest,
    queue::Queue,
    resource_lanes::commit_resources,
    transaction_lane::commit_transactions,
};
use crate::{config::Enforcement, metrics::CommitMetrics, store::Store};

/// The running committer.
#[derive(Debug)]
pub(crate) struct Committer {
    close: CancellationToken,
    lanes: JoinSet<()>,
}

impl Committer {
    /// Starts a committer, and returns its queue.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        enforcement: Enforcement,
        metrics: CommitMetrics,
    ) -> (Queue, Self) {
        let has_transactions = store.has_transactions();
        let group_commit = Arc::new(GroupCommit::new(store, enforcement, metrics));
        let close = CancellationToken::new();
        let (jobs, queued) = mpsc::unbounded_channel();
        let mut lanes = JoinSet::new();
        let last_failure = group_commit.last_failure();
        let (transactions, queued_transactions) = mpsc::unbounded_channel();
        let oldest = [Oldest::default(), Oldest::default(), Oldest::default()];
        let [of_batches, of_blocked, of_transactions] = oldest.clone();
        if has_transactions {
            lanes.spawn(commit_transactions(
                group_commit.clone(),
                queued_transactions,
                close.clone(),
                of_transactions,
            ));
            let (blocked_lane, blocked_jobs) = BlockedLane::new();
            lanes.spawn(commit_blocked(group_commit.clone(), blocked_jobs, of_blocked));
            lanes.spawn(commit_batches(
                group_commit,
                queued,
                close.clone(),
                blocked_lane,
                of_batches,
            ));
        } else {
            lanes.spawn(commit_resources(
                group_commit.clone(),
                queued_transactions,
                close.clone(),
                of_transactions,
            ));
            lanes.spawn(commit_resources(group_commit, queued, close.clone(), of_batches));
        }
        (Queue::new(jobs, transactions, oldest, last_failure), Self { close, lanes })
    }

    /// Closes the queue, and waits until all queued operations are answered.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the operations that are left are answered with an unknown outcome.
    ///
    /// # Errors
    /// If the committer panicked.
    pub(crate) async fn drain(mut self) -> Result<(), JoinError> {
        self.close.cancel();
        while let Some(stopped) = self.lanes.join_next().await {
            stopped?;
        }
        Ok(())
    }

    /// Waits until the committer panics. It never stops in another way before it is drained.
    pub(crate) async fn failed(&mut self) -> JoinError {
        let stopped = self.lanes.join_next().await.expect("the lanes were spawned");
        stopped.expect_err("a lane runs until it is drained")
    }
}

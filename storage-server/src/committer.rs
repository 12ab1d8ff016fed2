//! Group commit: many operations in one durable transaction.
//!
//! Handlers [queue](queue::Queue::submit) a transaction and wait for its decision. A single operation is a
//! transaction of one. The committer takes the queued transactions as one batch and loads the rows that they
//! act on. It applies the operations in order of arrival, and has the store make the changed rows durable.
//! Only then are the operations answered. Several operations on one resource become one change of its row,
//! so a hot resource does not cost a commit per write.
//!
//! Transactions that share resources are one group: the store makes all of its changes or none. Also rows that
//! are only compared are locked until the batch is durable.
//!
//! If a rival, such as another server on the same database, has changed a row meanwhile, its group is loaded
//! and decided again. If another transaction locks a row, or if rivals are always faster, the operations on it
//! leave the batches. They delay no others then, and are decided under the locks of their rows.
//!
//! A store without transactions changes each resource by itself, and many at once. There are no batches: the
//! operations that queue for a resource while it is being changed share its next change.

mod dispatcher;
mod failure;
#[cfg(test)]
mod fake_store;
mod group;
mod group_commit;
mod guesses;
pub(crate) mod job;
pub(crate) mod queue;

use std::sync::Arc;

use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

use self::{
    dispatcher::Dispatcher,
    group_commit::GroupCommit,
    queue::{Oldest, Queue},
};
use crate::{config::Enforcement, metrics::CommitMetrics, store::Store};

/// The running committer.
#[derive(Debug)]
pub(crate) struct Committer {
    close: CancellationToken,
    /// The dispatcher, which ends with this set.
    running: JoinSet<()>,
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
        let (jobs, queued) = mpsc::unbounded_channel();
        let oldest = Oldest::default();
        let queue = Queue::new(jobs, oldest.clone(), group_commit.last_failure());
        let dispatcher = Dispatcher::new(group_commit, has_transactions, oldest);
        let (close, mut running) = (CancellationToken::new(), JoinSet::new());
        running.spawn(dispatcher.run(queued, close.clone()));
        (queue, Self { close, running })
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
        self.running.join_next().await.expect("it was spawned")
    }

    /// Waits until the committer panics. It never stops in another way before it is drained.
    pub(crate) async fn failed(&mut self) -> JoinError {
        let stopped = self.running.join_next().await.expect("it was spawned");
        stopped.expect_err("it runs until it is drained")
    }
}

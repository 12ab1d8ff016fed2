//! The queue between the handlers and the committer.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time::Instant,
};

use super::{
    failure::LastFailure,
    job::{Job, Unavailable, UnavailableOutcome},
};
use crate::{
    operation::{Decided, Operation},
    transaction::{DecidedTransaction, Transaction},
};

/// How many operations may wait for their decision at once; further ones fail as unavailable.
const MAX_QUEUED: usize = 4096;

/// Where handlers queue operations.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    jobs: mpsc::UnboundedSender<Job>,
    places: Arc<Semaphore>,
    oldest: Oldest,
    last_failure: LastFailure,
}

/// When the oldest operation was queued that is not decided. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Oldest(Arc<Mutex<Option<Instant>>>);

impl Oldest {
    pub(super) fn note(&self, queued: Option<Instant>) {
        *self.0.lock().expect("no panic while it is held") = queued;
    }
}

impl Queue {
    pub(super) fn new(
        jobs: mpsc::UnboundedSender<Job>,
        oldest: Oldest,
        last_failure: LastFailure,
    ) -> Self {
        Self { jobs, places: Arc::new(Semaphore::new(MAX_QUEUED)), oldest, last_failure }
    }

    /// How many operations wait for their decision.
    pub(crate) fn depth(&self) -> usize {
        MAX_QUEUED - self.places.available_permits()
    }

    /// How long the oldest operation has waited for its decision; zero if there is none.
    pub(crate) fn oldest_waited(&self) -> Duration {
        let queued = *self.oldest.0.lock().expect("no panic while it is held");
        queued.map(|queued| queued.elapsed()).unwrap_or_default()
    }

    /// Why the last commit failed, if it did, and recently.
    pub(crate) fn recent_failure(&self) -> Option<String> {
        self.last_failure.recent()
    }

    /// Queues an operation and waits for its decision, which is durable by then.
    ///
    /// # Errors
    /// [`Unavailable`] if the database can't be reached, its row stays locked, too many operations
    /// are queued, or the server is stopping.
    ///
    /// # Cancellation safety
    /// If this future is dropped, an operation that is not in a batch yet does not take effect. One
    /// that is may take effect.
    pub(crate) async fn submit(&self, operation: Operation) -> Result<Decided, Unavailable> {
        let transaction = Arc::new(Transaction::single(operation));
        let mut decided = self.submit_transaction(transaction).await?;
        Ok(decided.writes.pop().expect("it has one write"))
    }

    /// Queues a transaction and waits for its decision, which is durable by then. It counts as
    /// many operations as it has writes.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    ///
    /// # Cancellation safety
    /// As for [`submit`](Self::submit). It takes effect as a whole or not at all.
    pub(crate) async fn submit_transaction(
        &self,
        transaction: Arc<Transaction>,
    ) -> Result<DecidedTransaction, Unavailable> {
        let unavailable =
            |outcome, reason: &str| Unavailable { outcome, reason: reason.to_owned() };
        let places = u32::try_from(transaction.writes.len()).unwrap_or(u32::MAX);
        let Ok(places) = self.places.clone().try_acquire_many_owned(places) else {
            return Err(unavailable(UnavailableOutcome::None, "too many operations are queued"));
        };
        let (reply, decision) = oneshot::channel();
        self.jobs
            .send(Job::new(transaction, reply, places))
            .map_err(|_| unavailable(UnavailableOutcome::None, "the server is shutting down"))?;
        decision.await.unwrap_or_else(|_| {
            Err(unavailable(UnavailableOutcome::Unknown, "the committer has stopped"))
        })
    }
}

#[cfg(test)]
mod tests {
    use fence::Token;

    use super::*;
    use crate::operation::Action;

    #[tokio::test]
    async fn full_queue_is_unavailable_and_nothing_has_happened() {
        let (jobs, _queued) = mpsc::unbounded_channel();
        let mut queue = Queue::new(jobs, Oldest::default(), LastFailure::default());
        queue.places = Arc::new(Semaphore::new(0));
        let unavailable = queue.submit(operation(Action::Claim)).await.unwrap_err();
        assert_eq!(unavailable.outcome, UnavailableOutcome::None);
        assert_eq!(unavailable.reason, "too many operations are queued");
    }

    fn operation(action: Action) -> Operation {
        Operation {
            resource: "r".parse().unwrap(),
            offered: None,
            ceiling: Token::MAX,
            numbered: None,
            action,
        }
    }
}

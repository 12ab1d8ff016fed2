//! The queue between the handlers and the committer.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot};

use super::job::{Job, Unavailable, UnavailableOutcome};
use crate::operation::{Decided, Operation};

/// How many operations may wait for their decision at once; further ones fail as unavailable.
const MAX_QUEUED: usize = 4096;

/// Where handlers queue operations.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    jobs: mpsc::UnboundedSender<Job>,
    places: Arc<Semaphore>,
}

impl Queue {
    pub(super) fn new(jobs: mpsc::UnboundedSender<Job>) -> Self {
        Self { jobs, places: Arc::new(Semaphore::new(MAX_QUEUED)) }
    }

    /// Queues an operation and waits for its decision, which is durable by then.
    ///
    /// # Errors
    /// [`Unavailable`] if the database can't be reached, its row stays locked, too many operations
    /// are queued, or the server is stopping.
    ///
    /// # Cancellation safety
    /// The operation may take effect even if this future is dropped.
    pub(crate) async fn submit(&self, operation: Operation) -> Result<Decided, Unavailable> {
        let unavailable =
            |outcome, reason: &str| Unavailable { outcome, reason: reason.to_owned() };
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return Err(unavailable(UnavailableOutcome::None, "too many operations are queued"));
        };
        let (reply, decision) = oneshot::channel();
        self.jobs
            .send(Job::new(operation, reply, place))
            .map_err(|_| unavailable(UnavailableOutcome::None, "the server is shutting down"))?;
        decision.await.unwrap_or_else(|_| {
            Err(unavailable(UnavailableOutcome::Unknown, "the committer has stopped"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Action;

    #[tokio::test]
    async fn full_queue_is_unavailable_and_nothing_has_happened() {
        let (jobs, _queued) = mpsc::unbounded_channel();
        let queue = Queue { jobs, places: Arc::new(Semaphore::new(0)) };
        let resource = "r".parse().unwrap();
        let operation = Operation { resource, offered: None, action: Action::Claim };
        let unavailable = queue.submit(operation).await.unwrap_err();
        assert_eq!(unavailable.outcome, UnavailableOutcome::None);
        assert_eq!(unavailable.reason, "too many operations are queued");
    }
}

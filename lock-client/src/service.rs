//! A lock service, and what the locks of one client share.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio_util::task::TaskTracker;

use crate::{
    backend::{Backend, BackendError},
    clock::Moment,
    local_queue::LocalQueues,
    mutex::Locked,
    retry::retry_until,
};

#[derive(Clone, Debug)]
pub(crate) struct LockService {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) queues: LocalQueues,
    /// The tasks that undo what was dropped.
    pub(crate) background: TaskTracker,
    unanswered: Arc<Mutex<Option<Unanswered>>>,
}

/// A request that the lock service has not carried out, and that is repeated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unanswered {
    /// Why, with the address of the server.
    pub reason: String,
    /// The moment until which it is repeated.
    pub until: Moment,
}

impl LockService {
    pub(crate) fn new(backend: impl Backend) -> Self {
        let (queues, unanswered) = Default::default();
        Self { backend: Arc::new(backend), queues, background: TaskTracker::new(), unanswered }
    }

    /// The duration of so many answer time-outs of the backend.
    pub(crate) fn patience(&self, answers: u32) -> Duration {
        self.backend.answer_timeout() * answers
    }

    /// Sends a request, and repeats it until it is answered or the deadline passes.
    pub(crate) async fn retry_until<T, F>(
        &self,
        deadline: Moment,
        mut request: impl FnMut() -> F,
    ) -> Result<T, BackendError>
    where
        F: Future<Output = Result<T, BackendError>>,
    {
        let recorded = || {
            let answer = request();
            async move {
                let answer = answer.await;
                self.record(deadline, answer.as_ref().err());
                answer
            }
        };
        retry_until(deadline, || self.backend.address(), recorded).await
    }

    pub(crate) fn unanswered(&self) -> Option<Unanswered> {
        self.unanswered.locked().clone()
    }

    /// Records whether a request was answered. Logs the first that was not.
    fn record(&self, until: Moment, error: Option<&BackendError>) {
        let reason = match error {
            Some(BackendError::Unavailable(reason)) => Some(reason.to_string()),
            _ => None,
        };
        let mut unanswered = self.unanswered.locked();
        if let (None, Some(reason)) = (&*unanswered, &reason) {
            tracing::warn!(reason, "the lock service is unavailable: the request is repeated");
        }
        *unanswered = reason.map(|reason| Unanswered { reason, until });
    }
}

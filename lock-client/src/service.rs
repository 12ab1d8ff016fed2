//! A lock service, and what the locks of one client share.

use std::{sync::Arc, time::Duration};

use crate::{
    backend::{Backend, BackendError},
    background::Background,
    clock::Moment,
    local_queue::LocalQueues,
    retry::retry_until,
};

/// A lock service, and what the locks of one client share.
#[derive(Clone, Debug)]
pub(crate) struct LockService {
    pub(crate) backend: Arc<dyn Backend>,
    /// The queues in which the waiters of this client wait.
    pub(crate) queues: LocalQueues,
    /// The tasks that undo what was dropped.
    pub(crate) background: Background,
}

impl LockService {
    pub(crate) fn new(backend: impl Backend, background: Background) -> Self {
        Self { backend: Arc::new(backend), queues: LocalQueues::default(), background }
    }

    /// The duration of so many answer time-outs of the backend.
    pub(crate) fn patience(&self, answers: u32) -> Duration {
        self.backend.answer_timeout() * answers
    }

    /// Sends a request, and repeats it until it is answered or the deadline passes.
    pub(crate) async fn retry_until<T, F>(
        &self,
        deadline: Moment,
        request: impl FnMut() -> F,
    ) -> Result<T, BackendError>
    where
        F: Future<Output = Result<T, BackendError>>,
    {
        retry_until(deadline, || self.backend.address(), request).await
    }
}

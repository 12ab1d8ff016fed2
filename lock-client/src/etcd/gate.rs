//! Requests that are sent one at a time, because one may do for all.

use tokio::sync::Mutex;

use crate::{backend::BackendError, clock::Moment};

/// Lets one request of a kind be under way at a time.
#[derive(Default)]
pub(super) struct Gate {
    /// When the last request without an answer began, and why it failed.
    failed: Mutex<Option<(Moment, String)>>,
}

impl Gate {
    /// Sends a request when the one before it has ended. A request without an answer that began
    /// meanwhile is as good as this one. Otherwise, each of those that wait would wait for all before
    /// it.
    pub(super) async fn run<T>(
        &self,
        request: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let asked = Moment::now();
        let mut failed = self.failed.lock().await;
        if let Some((began, reason)) = &*failed
            && *began > asked
        {
            return Err(BackendError::Unavailable(reason.clone().into()));
        }
        let began = Moment::now();
        let answer = request.await;
        if let Err(BackendError::Unavailable(reason)) = &answer {
            *failed = Some((began, reason.to_string()));
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use futures_util::future::join_all;
    use tokio::time::sleep;

    use super::*;

    /// The first one began before the others asked.
    #[tokio::test]
    async fn waiting_requests_share_one_failure() {
        let (gate, sent) = (Gate::default(), AtomicUsize::new(0));
        let request = async || {
            sent.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(1)).await;
            Err::<(), _>(BackendError::Unavailable("silence".into()))
        };
        for failure in join_all((0..20).map(|_| gate.run(request()))).await {
            assert!(matches!(failure, Err(BackendError::Unavailable(_))), "{failure:?}");
        }
        assert_eq!(sent.load(Ordering::Relaxed), 2);
        gate.run(request()).await.unwrap_err();
        assert_eq!(sent.load(Ordering::Relaxed), 3, "a later one is sent");
        let rejected = async || Err::<(), _>(BackendError::Rejected("no permission".into()));
        let (first, second) = tokio::join!(gate.run(rejected()), gate.run(async { Ok(()) }));
        assert!(first.is_err() && second.is_ok(), "the control: it was answered");
    }
}

//! The probe of the database: a write that changes nothing.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{causes::with_causes, store::Store};

/// For how long a result is reused.
const RESULT_LIFETIME: Duration = Duration::from_secs(1);
/// How long to wait for a result.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Probes the database on request: one probe at a time, and not more than one each second. The next
/// probe starts after the last one has ended.
#[derive(Debug)]
pub(crate) struct Prober {
    request: Arc<Notify>,
    probed: watch::Receiver<Option<Probed>>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone, Debug)]
struct Probed {
    at: Instant,
    result: Result<(), String>,
}

impl Probed {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < RESULT_LIFETIME
    }
}

impl Prober {
    pub(crate) fn start(store: Arc<dyn Store>) -> Self {
        let request = Arc::new(Notify::new());
        let (results, probed) = watch::channel(None);
        let task = tokio::spawn({
            let request = request.clone();
            async move {
                loop {
                    request.notified().await;
                    // The last probe may have ended after this request.
                    if results.borrow().as_ref().is_some_and(Probed::is_fresh) {
                        continue;
                    }
                    let result = store.probe().await.map_err(|error| with_causes(&error));
                    results.send_replace(Some(Probed { at: Instant::now(), result }));
                }
            }
        });
        Self { request, probed, _task: AbortOnDropHandle::new(task) }
    }

    /// Returns an error if the database takes no write at this moment.
    pub(crate) async fn probe(&self) -> Result<(), String> {
        let mut probed = self.probed.clone();
        let last = probed.borrow_and_update().clone();
        if let Some(last) = last.filter(Probed::is_fresh) {
            return last.result;
        }
        self.request.notify_one();
        match timeout(PROBE_TIMEOUT, probed.changed()).await {
            Ok(Ok(())) => probed.borrow().clone().expect("a result was sent").result,
            Ok(Err(_)) | Err(_) => Err(format!(
                "the database did not take a write within {} s",
                PROBE_TIMEOUT.as_secs()
            )),
        }
    }
}

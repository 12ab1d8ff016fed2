//! What goes on in the background, and when it is done.

use std::sync::{Mutex, MutexGuard};

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// What goes on in the background. Each tracker has what began between two questions whether all is
/// done; the last has what begins now.
#[derive(Default)]
pub(super) struct Background {
    trackers: Mutex<Vec<TaskTracker>>,
}

impl Background {
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let mut trackers = self.trackers();
        if trackers.is_empty() {
            trackers.push(closed());
        }
        trackers[trackers.len() - 1].spawn(task)
    }

    /// Waits until all is done that has begun before. What begins meanwhile isn't waited for.
    pub(super) async fn settled(&self) {
        let begun = {
            let mut trackers = self.trackers();
            trackers.retain(|tracker| !tracker.is_empty());
            let begun = trackers.clone();
            trackers.push(closed());
            begun
        };
        for tracker in begun {
            tracker.wait().await;
        }
    }

    fn trackers(&self) -> MutexGuard<'_, Vec<TaskTracker>> {
        self.trackers.lock().expect("nothing panics while it has this")
    }
}

/// A tracker that isn't closed is never waited to the end of.
fn closed() -> TaskTracker {
    let tracker = TaskTracker::new();
    tracker.close();
    tracker
}

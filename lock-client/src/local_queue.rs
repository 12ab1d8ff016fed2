//! Queues of the waiters of one process: only the first waiter of each asks the lock service.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use fence::ResourceName;
use tokio::sync::OwnedMutexGuard;

use crate::mutex::Locked;

/// The queues of a process, one for each lock that has waiters.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalQueues {
    queues: Arc<Mutex<Queues>>,
}

/// Each waiter holds its queue's mutex while it is the first.
type Queues = HashMap<ResourceName, Arc<tokio::sync::Mutex<()>>>;

/// The first place in a queue. The next waiter gets it when this value is dropped.
#[derive(Debug)]
pub(crate) struct FirstPlace {
    queues: LocalQueues,
    name: ResourceName,
    place: Option<OwnedMutexGuard<()>>,
}

impl LocalQueues {
    /// Waits for the first place.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the waiter leaves the queue.
    pub(crate) async fn wait_for_first_place(&self, name: &ResourceName) -> FirstPlace {
        let queue = self.queues.locked().entry(name.clone()).or_default().clone();
        let mut first = FirstPlace { queues: self.clone(), name: name.clone(), place: None };
        first.place = Some(queue.lock_owned().await);
        first
    }
}

impl Drop for FirstPlace {
    fn drop(&mut self) {
        let mut queues = self.queues.queues.locked();
        self.place = None;
        // Only the map still refers to the queue: it has no waiters.
        if queues.get(&self.name).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            queues.remove(&self.name);
        }
    }
}

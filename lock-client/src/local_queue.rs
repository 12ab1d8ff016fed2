//! Where those of one process wait for a lock, so that only the first of them asks the lock service.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use fence::ResourceName;
use tokio::sync::OwnedMutexGuard;

/// The queues of a process, one for each lock that somebody waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalQueues {
    queues: Arc<Mutex<HashMap<ResourceName, Arc<tokio::sync::Mutex<()>>>>>,
}

/// The first place in a queue, which goes to the next when this is dropped.
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
    /// If this future is dropped, the queue is left.
    pub(crate) async fn first_place(&self, name: &ResourceName) -> FirstPlace {
        let queue = self.queues().entry(name.clone()).or_default().clone();
        let mut first = FirstPlace { queues: self.clone(), name: name.clone(), place: None };
        first.place = Some(queue.lock_owned().await);
        first
    }

    fn queues(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<ResourceName, Arc<tokio::sync::Mutex<()>>>> {
        self.queues.lock().expect("nothing panics while it has this")
    }
}

impl Drop for FirstPlace {
    fn drop(&mut self) {
        let mut queues = self.queues.queues();
        self.place = None;
        // Nobody but the map has it: nobody waits.
        if queues.get(&self.name).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            queues.remove(&self.name);
        }
    }
}

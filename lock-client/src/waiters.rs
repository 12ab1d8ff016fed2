//! The waiters of one client, by the channels on which they are notified.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::Notify;

/// The waiters of one client. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Waiters(Arc<Registry>);

#[derive(Default)]
struct Registry {
    by_channel: Mutex<HashMap<String, Vec<Arc<Notify>>>>,
    /// Notified when a waiter was added, or a channel has lost its last one.
    changed: Notify,
}

/// A waiter. It is removed when this value is dropped.
pub(crate) struct Waiter {
    waiters: Waiters,
    channels: Vec<String>,
    pub(crate) freed: Arc<Notify>,
}

impl Waiters {
    /// Adds a waiter to these channels.
    pub(crate) fn add(&self, channels: Vec<String>) -> Waiter {
        let freed = Arc::new(Notify::new());
        for channel in &channels {
            self.by_channel().entry(channel.clone()).or_default().push(freed.clone());
        }
        self.0.changed.notify_one();
        Waiter { waiters: self.clone(), channels, freed }
    }

    pub(crate) fn notify(&self, channel: &str) {
        let waiters = self.by_channel();
        waiters.get(channel).into_iter().flatten().for_each(|freed| freed.notify_one());
    }

    pub(crate) fn notify_all(&self) {
        self.by_channel().values().flatten().for_each(|freed| freed.notify_one());
    }

    /// Whether this is the first of the waiters of a channel that was added.
    pub(crate) fn is_oldest(&self, channel: &str, freed: &Arc<Notify>) -> bool {
        let waiters = self.by_channel();
        waiters
            .get(channel)
            .and_then(|waiters| waiters.first())
            .is_some_and(|it| Arc::ptr_eq(it, freed))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_channel().is_empty()
    }

    pub(crate) fn channels(&self) -> HashSet<String> {
        self.by_channel().keys().cloned().collect()
    }

    /// Waits until the channels may have changed since the last call.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn by_channel(&self) -> MutexGuard<'_, HashMap<String, Vec<Arc<Notify>>>> {
        self.0.by_channel.lock().expect("nothing panics while it holds this")
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiters = self.waiters.by_channel();
        for channel in &self.channels {
            let Some(same) = waiters.get_mut(channel) else { continue };
            same.retain(|freed| !Arc::ptr_eq(freed, &self.freed));
            if same.is_empty() {
                waiters.remove(channel);
                self.waiters.0.changed.notify_one();
            }
        }
    }
}

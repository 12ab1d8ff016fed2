//! The waiters of one client, by the channels on which they are notified.

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::{Arc, Mutex},
};

use tokio::sync::Notify;

use crate::mutex::Locked;

/// The waiters of one client. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Waiters(Arc<Registry>);

#[derive(Default)]
struct Registry {
    channels: Mutex<Channels>,
    /// Notified when a waiter was added, or a channel has lost its last one.
    changed: Notify,
}

#[derive(Default)]
struct Channels {
    /// In a channel, the oldest waiter is first.
    waiters: HashMap<String, Vec<Arc<Notify>>>,
    /// The channels that got a waiter, or lost their last one, since the task looked. `None` if no task looks.
    changed: Option<HashSet<String>>,
}

impl Channels {
    fn record_change(&mut self, channel: &str) {
        self.changed.as_mut().map(|changed| changed.insert(channel.to_owned()));
    }
}

/// A waiter. It is removed when this value is dropped.
pub(crate) struct Waiter {
    waiters: Waiters,
    channels: Vec<String>,
    pub(crate) freed: Arc<Notify>,
}

impl Waiters {
    /// The same, for a task that subscribes to the channels.
    pub(crate) fn with_changes() -> Self {
        let waiters = Self::default();
        waiters.0.channels.locked().changed = Some(HashSet::new());
        waiters
    }

    /// Adds a waiter to these channels.
    pub(crate) fn add(&self, channels: Vec<String>) -> Waiter {
        let freed = Arc::new(Notify::new());
        let mut known = self.0.channels.locked();
        for channel in &channels {
            known.waiters.entry(channel.clone()).or_default().push(freed.clone());
            known.record_change(channel);
        }
        drop(known);
        self.0.changed.notify_one();
        Waiter { waiters: self.clone(), channels, freed }
    }

    pub(crate) fn notify(&self, channel: &str) {
        let channels = self.0.channels.locked();
        channels.waiters.get(channel).into_iter().flatten().for_each(|freed| freed.notify_one());
    }

    pub(crate) fn notify_all(&self) {
        self.0.channels.locked().waiters.values().flatten().for_each(|freed| freed.notify_one());
    }

    /// Whether this is the first of the waiters of a channel that was added.
    pub(crate) fn is_oldest(&self, channel: &str, freed: &Arc<Notify>) -> bool {
        let channels = self.0.channels.locked();
        let oldest = channels.waiters.get(channel).and_then(|waiters| waiters.first());
        oldest.is_some_and(|it| Arc::ptr_eq(it, freed))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.channels.locked().waiters.is_empty()
    }

    /// Takes the channels that have changed: those with waiters, and those without.
    pub(crate) fn take_changed(&self) -> (HashSet<String>, HashSet<String>) {
        let Channels { waiters, changed } = &mut *self.0.channels.locked();
        let changed = changed.as_mut().map(mem::take).unwrap_or_default();
        changed.into_iter().partition(|channel| waiters.contains_key(channel))
    }

    /// Lets all channels count as changed, as for a new connection.
    pub(crate) fn mark_all_changed(&self) {
        let Channels { waiters, changed } = &mut *self.0.channels.locked();
        changed.iter_mut().for_each(|changed| changed.extend(waiters.keys().cloned()));
    }

    /// Waits until channels may have changed since the last call. Only one task may wait for it.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut channels = self.waiters.0.channels.locked();
        for channel in &self.channels {
            let Some(same) = channels.waiters.get_mut(channel) else { continue };
            same.retain(|freed| !Arc::ptr_eq(freed, &self.freed));
            if same.is_empty() {
                channels.waiters.remove(channel);
                channels.record_change(channel);
                self.waiters.0.changed.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_looks_only_at_channels_that_have_changed() {
        let waiters = Waiters::with_changes();
        let [first, _second] =
            ["gone", "kept"].map(|channel| waiters.add(vec![channel.to_owned()]));
        let changed = |[wanted, unneeded]: [&[&str]; 2]| {
            let expected = [wanted, unneeded].map(|channels| {
                channels.iter().map(|&channel| channel.to_owned()).collect::<HashSet<_>>()
            });
            assert_eq!(<[_; 2]>::from(waiters.take_changed()), expected);
        };
        changed([&["gone", "kept"], &[]]);
        let third = waiters.add(vec!["new".to_owned()]);
        drop(first);
        changed([&["new"], &["gone"]]);
        changed([&[], &[]]);
        drop(third);
        waiters.mark_all_changed();
        changed([&["kept"], &["new"]]);
    }
}

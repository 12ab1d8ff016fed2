//! What all clients of a broken backend know.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use fence::{Holder, ResourceName};
use lock_client::backend::Wakeups;
use tokio::{sync::Notify, task::JoinSet};

/// What all clients know.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// How often the service was stopped.
    pub(super) stops: AtomicUsize,
    /// The one subscription of each name that is notified.
    subscribed: Mutex<HashMap<ResourceName, Weak<()>>>,
    /// The waiters of each name in their order.
    waiters: Mutex<HashMap<ResourceName, Vec<Holder>>>,
}

impl Shared {
    /// Adds a waiter, and returns whether it came first of all, dead or alive.
    pub(super) fn is_first(&self, name: &ResourceName, holder: &Holder) -> bool {
        let mut waiters = self.waiters.lock().unwrap();
        let waiters = waiters.entry(name.clone()).or_default();
        if !waiters.contains(holder) {
            waiters.push(holder.clone());
        }
        waiters[0] == *holder
    }

    /// Removes a waiter.
    pub(super) fn forget_waiter(&self, name: &ResourceName, holder: &Holder) {
        if let Some(waiters) = self.waiters.lock().unwrap().get_mut(name) {
            waiters.retain(|waiter| waiter != holder);
        }
    }

    /// Passes notifications on until the service stops.
    pub(super) fn until_stop(self: &Arc<Self>, wakeups: Wakeups) -> Wakeups {
        let shared = self.clone();
        let stops = shared.stops.load(Ordering::SeqCst);
        passed_on_while(wakeups, move || shared.stops.load(Ordering::SeqCst) == stops, ())
    }

    /// Passes notifications on, unless there is another subscription to the name.
    pub(super) fn if_first(&self, name: &ResourceName, wakeups: Wakeups) -> Wakeups {
        let own = Arc::new(());
        let mut subscribed = self.subscribed.lock().unwrap();
        let is_first = subscribed.get(name).is_none_or(|other| other.strong_count() == 0);
        if is_first {
            subscribed.insert(name.clone(), Arc::downgrade(&own));
        }
        passed_on_while(wakeups, move || is_first, own)
    }
}

/// Passes notifications on as long as a condition holds.
fn passed_on_while(
    wakeups: Wakeups,
    condition: impl Fn() -> bool + Send + 'static,
    subscription: impl Send + Sync + 'static,
) -> Wakeups {
    let freed = Arc::new(Notify::new());
    let (mut passing, notified) = (JoinSet::new(), freed.clone());
    passing.spawn(async move {
        loop {
            wakeups.next().await;
            if condition() {
                notified.notify_one();
            }
        }
    });
    Wakeups::new(freed, (passing, subscription))
}

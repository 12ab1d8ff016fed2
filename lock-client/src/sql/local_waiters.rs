//! Waiters of a database that notifies nobody. Their own client notifies them. For releases by other
//! clients, they poll.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use fence::{Holder, ResourceName};
use tokio::sync::Notify;

use super::polling::poll;
use crate::{backend::Wakeups, background::AbortOnDrop, terms::Order};

/// The waiters of one client. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct LocalWaiters {
    by_name: Arc<Mutex<HashMap<ResourceName, Vec<Waiter>>>>,
}

struct Waiter {
    /// `None` in no order.
    place: Option<Holder>,
    freed: Arc<Notify>,
}

/// A subscription of one waiter. It ends when this value is dropped.
struct Subscription {
    waiters: LocalWaiters,
    name: ResourceName,
    freed: Arc<Notify>,
    _polling: AbortOnDrop,
}

impl LocalWaiters {
    pub(crate) fn subscribe(&self, name: &ResourceName, holder: &Holder, order: Order) -> Wakeups {
        let freed = Arc::new(Notify::new());
        let place = (order == Order::Fair).then(|| holder.clone());
        let waiter = Waiter { place, freed: freed.clone() };
        self.by_name().entry(name.clone()).or_default().push(waiter);
        let (waiters, lock, own) = (self.clone(), name.clone(), freed.clone());
        let polling = poll(freed.clone(), move || waiters.must_poll(&lock, &own));
        let subscription = Subscription {
            waiters: self.clone(),
            name: name.clone(),
            freed: freed.clone(),
            _polling: tokio::spawn(polling).into(),
        };
        Wakeups::new(freed, subscription)
    }

    /// Notifies the waiters of a lock that this client has released: those in no order, and the first
    /// in the queue, whose holder begins with this.
    pub(crate) fn notify(&self, name: &ResourceName, first: Option<&str>) {
        let is_first =
            |holder: &Holder| first.is_some_and(|first| holder.as_str().starts_with(first));
        for waiter in self.by_name().get(name).into_iter().flatten() {
            if waiter.place.as_ref().is_none_or(is_first) {
                waiter.freed.notify_one();
            }
        }
    }

    /// Whether a waiter polls. Of those in the queue only the oldest does, because the others are not
    /// next. If the database has them in another order, they try when their naps end.
    fn must_poll(&self, name: &ResourceName, own: &Arc<Notify>) -> bool {
        let by_name = self.by_name();
        let waiters = by_name.get(name).map_or(&[][..], Vec::as_slice);
        let position = waiters.iter().position(|waiter| Arc::ptr_eq(&waiter.freed, own));
        position.is_none_or(|position| {
            waiters[position].place.is_none()
                || waiters[..position].iter().all(|waiter| waiter.place.is_none())
        })
    }

    fn by_name(&self) -> MutexGuard<'_, HashMap<ResourceName, Vec<Waiter>>> {
        self.by_name.lock().expect("nothing panics while it holds this")
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut by_name = self.waiters.by_name();
        let Some(waiters) = by_name.get_mut(&self.name) else { return };
        waiters.retain(|waiter| !Arc::ptr_eq(&waiter.freed, &self.freed));
        if waiters.is_empty() {
            by_name.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// No time passes, so that no waiter polls.
    #[tokio::test(start_paused = true)]
    async fn release_notifies_those_in_no_order_and_the_first_in_the_queue() {
        let waiters = LocalWaiters::default();
        let (name, other) = ("deploy".parse().unwrap(), "other".parse().unwrap());
        let [first, second, unordered] = ["first-1", "second-2", "x"].map(|id| id.parse().unwrap());
        let subscriptions = [
            waiters.subscribe(&name, &first, Order::Fair),
            waiters.subscribe(&name, &second, Order::Fair),
            waiters.subscribe(&name, &unordered, Order::Unordered),
            waiters.subscribe(&other, &unordered, Order::Unordered),
        ];
        let notified = || {
            subscriptions
                .each_ref()
                .map(|subscription| subscription.next().now_or_never().is_some())
        };
        waiters.notify(&name, Some("first"));
        assert_eq!(notified(), [true, false, true, false]);
        waiters.notify(&name, None);
        assert_eq!(notified(), [false, false, true, false]);
        let must_poll = |name| {
            let by_name = waiters.by_name();
            let freed: Vec<_> = by_name[name].iter().map(|waiter| waiter.freed.clone()).collect();
            drop(by_name);
            freed.iter().map(|own| waiters.must_poll(name, own)).collect::<Vec<_>>()
        };
        assert_eq!(must_poll(&name), [true, false, true]);
        drop(subscriptions);
        assert!(waiters.by_name().is_empty());
    }
}

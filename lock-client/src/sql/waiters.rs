//! The waiters of one client, by the notifications that they wait for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use fence::{Holder, ResourceName};
use tokio::{sync::Notify, time::sleep};
use tokio_util::task::AbortOnDropHandle;

use super::answer::{InvalidAnswer, LockDatabase};
use crate::{backend::Wakeups, retry::pauses, terms::Order};

/// The longest pause is half as long again, and so shorter than a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(650);

/// The waiters of one client. Clones share them.
///
/// A notification is a space and a lock's name. For the first waiter of a queue, the first 8 characters of
/// its holder stand before that.
#[derive(Clone, Default)]
pub(crate) struct Waiters {
    by_lock: Arc<Mutex<HashMap<String, Vec<Waiter>>>>,
}

struct Waiter {
    /// The beginning of a fair waiter's holder.
    place: Option<String>,
    freed: Arc<Notify>,
}

impl Waiter {
    /// A release that does not see the place of a fair waiter yet names no place, and notifies all.
    fn is_meant(&self, place: &str) -> bool {
        place.is_empty() || self.place.as_deref() == Some(place)
    }
}

/// A subscription of one waiter. It ends when this value is dropped.
struct Subscription {
    waiters: Waiters,
    lock: String,
    freed: Arc<Notify>,
    _polling: AbortOnDropHandle<()>,
}

impl Waiters {
    /// Adds a waiter, which also polls while it must. Of a client's fair waiters for one lock, only the
    /// oldest polls, because the others are not next. If the database has them in another order, they try
    /// when their naps end.
    pub(crate) fn subscribe(
        &self,
        name: &ResourceName,
        holder: &Holder,
        order: Order,
        must_poll: impl Fn() -> bool + Send + 'static,
    ) -> Wakeups {
        let place = (order == Order::Fair).then(|| holder.as_str().chars().take(8).collect());
        let (lock, freed) = (name.as_str().to_owned(), Arc::new(Notify::new()));
        let waiter = Waiter { place, freed: freed.clone() };
        self.by_lock().entry(lock.clone()).or_default().push(waiter);
        let (waiters, own_lock, own) = (self.clone(), lock.clone(), freed.clone());
        let may_be_next =
            move || order == Order::Unordered || waiters.is_oldest_in_order(&own_lock, &own);
        let polling = poll(freed.clone(), move || must_poll() && may_be_next());
        let subscription = Subscription {
            waiters: self.clone(),
            lock,
            freed: freed.clone(),
            _polling: AbortOnDropHandle::new(tokio::spawn(polling)),
        };
        Wakeups::new(freed, subscription)
    }

    pub(crate) fn notify(&self, notification: &str) {
        let Some((place, lock)) = notification.split_once(' ') else { return };
        let by_lock = self.by_lock();
        let waiters = by_lock.get(lock).into_iter().flatten();
        waiters
            .filter(|waiter| waiter.is_meant(place))
            .for_each(|waiter| waiter.freed.notify_one());
    }

    pub(crate) fn notify_all(&self) {
        self.by_lock().values().flatten().for_each(|waiter| waiter.freed.notify_one());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_lock().is_empty()
    }

    /// Reads the answer to a release in a database that notifies nobody, and notifies its own waiters.
    pub(crate) fn released<D: LockDatabase>(
        &self,
        name: &ResourceName,
        row: &D::Row,
    ) -> Result<bool, InvalidAnswer> {
        let first = D::text(row, "first_waiter")?.unwrap_or_default();
        self.notify(&format!("{first} {name}"));
        Ok(D::number(row, "released")? == Some(1))
    }

    /// Whether this is the oldest of the client's fair waiters for a lock.
    fn is_oldest_in_order(&self, lock: &str, own: &Arc<Notify>) -> bool {
        let by_lock = self.by_lock();
        let mut waiters = by_lock.get(lock).into_iter().flatten();
        let oldest = waiters.find(|waiter| waiter.place.is_some());
        oldest.is_some_and(|oldest| Arc::ptr_eq(&oldest.freed, own))
    }

    fn by_lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Waiter>>> {
        self.by_lock.lock().expect("nothing panics while it holds this")
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut by_lock = self.waiters.by_lock();
        let Some(waiters) = by_lock.get_mut(&self.lock) else { return };
        waiters.retain(|waiter| !Arc::ptr_eq(&waiter.freed, &self.freed));
        if waiters.is_empty() {
            by_lock.remove(&self.lock);
        }
    }
}

/// Notifies a waiter again and again: at first often, and at least once a second.
async fn poll(freed: Arc<Notify>, must_poll: impl Fn() -> bool) {
    for pause in pauses(LONGEST_PAUSE) {
        sleep(pause).await;
        if must_poll() {
            freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::timeout;

    use super::*;

    /// No time passes, so that no waiter polls.
    #[tokio::test(start_paused = true)]
    async fn release_notifies_the_first_in_the_queue_or_all() {
        let waiters = Waiters::default();
        let (name, other) = ("deploy".parse().unwrap(), "other".parse().unwrap());
        let [first, second] = ["first-1-1", "second-2"].map(|id| id.parse().unwrap());
        let subscriptions = [
            waiters.subscribe(&name, &first, Order::Fair, || true),
            waiters.subscribe(&name, &second, Order::Fair, || true),
            waiters.subscribe(&name, &second, Order::Unordered, || true),
            waiters.subscribe(&other, &first, Order::Unordered, || true),
        ];
        for (notification, expected) in [
            ("first-1- deploy", [true, false, false, false]),
            (" deploy", [true, true, true, false]),
        ] {
            waiters.notify(notification);
            let is_notified = |waiter: &Wakeups| waiter.next().now_or_never().is_some();
            assert_eq!(subscriptions.each_ref().map(is_notified), expected);
        }
        drop(subscriptions);
        assert!(waiters.is_empty());
    }

    /// With a hundred that poll, a fair lock was handed over eight times as slowly.
    #[tokio::test(start_paused = true)]
    async fn only_the_oldest_of_the_fair_waiters_polls() {
        let waiters = Waiters::default();
        let name = "deploy".parse().unwrap();
        let [first, second] = ["first-1-1", "second-2"].map(|id| id.parse().unwrap());
        let unordered = waiters.subscribe(&name, &second, Order::Unordered, || true);
        let oldest = waiters.subscribe(&name, &first, Order::Fair, || true);
        let younger = waiters.subscribe(&name, &second, Order::Fair, || true);
        let polls = async |waiter: &Wakeups| {
            let longest = Duration::from_secs(1);
            timeout(longest, waiter.next()).await.is_ok()
        };
        for _ in 0..10 {
            let polling = (polls(&unordered).await, polls(&oldest).await, polls(&younger).await);
            assert_eq!(polling, (true, true, false));
        }
        drop(oldest);
        assert!(polls(&younger).await);
    }

    #[test]
    fn waiter_that_polls_tries_once_a_second_or_more_often() {
        let longest = pauses(LONGEST_PAUSE).take(1_000).max();
        assert!(longest < Some(Duration::from_secs(1)), "{longest:?}");
    }
}

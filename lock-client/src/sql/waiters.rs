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
    by_notification: Arc<Mutex<HashMap<String, Vec<Arc<Notify>>>>>,
}

/// A subscription of one waiter. It ends when this value is dropped.
struct Subscription {
    waiters: Waiters,
    notifications: Vec<String>,
    freed: Arc<Notify>,
    _polling: AbortOnDropHandle<()>,
}

impl Waiters {
    /// Adds a waiter, which also polls while it must.
    pub(crate) fn subscribe(
        &self,
        name: &ResourceName,
        holder: &Holder,
        order: Order,
        must_poll: impl Fn() -> bool + Send + 'static,
    ) -> Wakeups {
        // A release that does not see the place of a fair waiter yet notifies all.
        let mut notifications = vec![format!(" {name}")];
        if order == Order::Fair {
            let beginning: String = holder.as_str().chars().take(8).collect();
            notifications.push(format!("{beginning} {name}"));
        }
        let freed = Arc::new(Notify::new());
        for notification in &notifications {
            let mut waiters = self.by_notification();
            waiters.entry(notification.clone()).or_default().push(freed.clone());
        }
        let subscription = Subscription {
            waiters: self.clone(),
            notifications,
            freed: freed.clone(),
            _polling: AbortOnDropHandle::new(tokio::spawn(poll(freed.clone(), must_poll))),
        };
        Wakeups::new(freed, subscription)
    }

    pub(crate) fn notify(&self, notification: &str) {
        let waiters = self.by_notification();
        let waiters = waiters.get(notification).into_iter().flatten();
        waiters.for_each(|freed| freed.notify_one());
    }

    pub(crate) fn notify_all(&self) {
        self.by_notification().values().flatten().for_each(|freed| freed.notify_one());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_notification().is_empty()
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

    fn by_notification(&self) -> MutexGuard<'_, HashMap<String, Vec<Arc<Notify>>>> {
        self.by_notification.lock().expect("nothing panics while it holds this")
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut waiters = self.waiters.by_notification();
        for notification in &self.notifications {
            let Some(same) = waiters.get_mut(notification) else { continue };
            same.retain(|freed| !Arc::ptr_eq(freed, &self.freed));
            if same.is_empty() {
                waiters.remove(notification);
            }
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
        assert!(waiters.by_notification().is_empty());
    }

    #[test]
    fn waiter_that_polls_tries_once_a_second_or_more_often() {
        let longest = pauses(LONGEST_PAUSE).take(1_000).max();
        assert!(longest < Some(Duration::from_secs(1)), "{longest:?}");
    }
}

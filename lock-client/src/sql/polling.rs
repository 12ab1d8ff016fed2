//! The waiters of a client of a database. Where nobody notifies them, they poll.

use std::{sync::Arc, time::Duration};

use fence::{Holder, ResourceName};
use tokio::{sync::Notify, time::sleep};
use tokio_util::task::AbortOnDropHandle;

use super::answer::{InvalidAnswer, LockDatabase};
use crate::{backend::Wakeups, retry::pauses, terms::Order, waiters::Waiters};

/// The longest pause is half as long again, and so shorter than a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(650);

/// The channel of all waiters for a lock. A release that does not see the place of a fair waiter yet notifies
/// all.
fn channel_of_all(name: &ResourceName) -> String {
    format!(" {name}")
}

/// The channel of a fair waiter. A release knows the first 8 characters of its holder.
fn channel_of_place(holder: &Holder, name: &ResourceName) -> String {
    let beginning: String = holder.as_str().chars().take(8).collect();
    format!("{beginning} {name}")
}

/// Nobody is notified on this channel. It only keeps the fair waiters in the order of their arrival. No holder
/// has this character.
fn channel_of_queue(name: &ResourceName) -> String {
    format!("\n {name}")
}

/// Adds a waiter, which also polls while it must. Of a client's fair waiters for one lock, only the oldest
/// polls, because the others are not next. If the database has them in another order, they try when their
/// naps end.
pub(crate) fn subscribe(
    waiters: &Waiters,
    name: &ResourceName,
    holder: &Holder,
    order: Order,
    must_poll: impl Fn() -> bool + Send + 'static,
) -> Wakeups {
    let mut channels = vec![channel_of_all(name)];
    let queue = (order == Order::Fair).then(|| channel_of_queue(name));
    if let Some(queue) = &queue {
        channels.extend([channel_of_place(holder, name), queue.clone()]);
    }
    let waiter = waiters.add(channels);
    let (waiters, freed) = (waiters.clone(), waiter.freed.clone());
    let may_be_next = move || queue.as_ref().is_none_or(|queue| waiters.is_oldest(queue, &freed));
    let polling = poll(waiter.freed.clone(), move || must_poll() && may_be_next());
    let polling = AbortOnDropHandle::new(tokio::spawn(polling));
    Wakeups::new(waiter.freed.clone(), (waiter, polling))
}

/// Reads the answer to a release in a database that notifies nobody, and notifies its own waiters.
pub(crate) fn released<D: LockDatabase>(
    waiters: &Waiters,
    name: &ResourceName,
    row: &D::Row,
) -> Result<bool, InvalidAnswer> {
    let first = D::text(row, "first_waiter")?.unwrap_or_default();
    waiters.notify(&format!("{first} {name}"));
    Ok(D::number(row, "released")? == Some(1))
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
            subscribe(&waiters, &name, &first, Order::Fair, || true),
            subscribe(&waiters, &name, &second, Order::Fair, || true),
            subscribe(&waiters, &name, &second, Order::Unordered, || true),
            subscribe(&waiters, &other, &first, Order::Unordered, || true),
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
        let unordered = subscribe(&waiters, &name, &second, Order::Unordered, || true);
        let oldest = subscribe(&waiters, &name, &first, Order::Fair, || true);
        let younger = subscribe(&waiters, &name, &second, Order::Fair, || true);
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

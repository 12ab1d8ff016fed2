//! The watches by which waiters are notified.

use std::{sync::Arc, time::Duration};

use fence::{Holder, ResourceName};
use tokio::{sync::Notify, time::sleep};

use super::{
    client::Etcd,
    keys::Keys,
    messages::{Streamed, Text, WatchCreate, WatchReply, WatchRequest},
    own::OwnKey,
    view::{Part, View},
};
use crate::{
    backend::{BackendError, Wakeups},
    background::AbortOnDrop,
    retry::pauses,
    terms::Order,
};

/// The longest pause before a lost watch is made again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a waiter whose turn it is may try before its subscription reads the queue again.
const TURN: Duration = Duration::from_millis(100);

/// Subscribes to what a waiter waits for.
pub(super) async fn subscribe(
    etcd: &Etcd,
    name: &ResourceName,
    holder: &Holder,
    order: Order,
) -> Result<Wakeups, BackendError> {
    let (etcd, keys) = (etcd.clone(), Keys::new(name));
    let place = (order == Order::Fair).then(|| keys.place(holder));
    // Watches begin behind this revision, so that nothing is missed from now on.
    let view = etcd.view(&keys, part(place.as_deref())).await?;
    let freed = Arc::new(Notify::new());
    let waiter = Waiter { etcd, keys, place, freed: freed.clone() };
    let task = tokio::spawn(waiter.follow(view));
    Ok(Wakeups::new(freed, AbortOnDrop::from(task)))
}

/// A subscription.
struct Waiter {
    etcd: Etcd,
    keys: Keys,
    /// The key of a waiter in the queue.
    place: Option<String>,
    freed: Arc<Notify>,
}

/// What a waiter waits for.
#[derive(Debug, PartialEq, Eq)]
enum Awaited {
    /// The key of the owner is deleted. Then this one of the waiter is the oldest.
    Turn(String, OwnKey),
    /// The key of another waiter, or the own one, is deleted.
    Key(String),
    /// Any key of the queue is deleted.
    Queue,
}

fn part(place: Option<&str>) -> Part {
    // The owner's key is read for the revision only.
    if place.is_some() { Part::All } else { Part::Owner }
}

impl Waiter {
    /// Notifies the waiter, again and again. Each step begins with what etcd shows, and waits for
    /// deletions that follow it. So it doesn't matter how a watch ends: with a deletion, or because it
    /// was lost.
    async fn follow(self, mut view: View) {
        let mut pauses = pauses(LONGEST_PAUSE);
        loop {
            let position = self.place.as_deref().and_then(|place| view.position(place));
            let awaited = match position {
                Some(0) => {
                    self.freed.notify_one();
                    Awaited::Key(view.queue[0].key.0.clone())
                }
                Some(1) => Awaited::Turn(view.queue[0].key.0.clone(), OwnKey::from(&view.queue[1])),
                Some(ahead) => Awaited::Key(view.queue[ahead - 1].key.0.clone()),
                None => Awaited::Queue,
            };
            let from = view.header.revision + 1;
            let was_deleted = self.notify_of_deletions(&awaited, from).await;
            if was_deleted && matches!(awaited, Awaited::Turn(..)) {
                // The attempt is faster without this read. If it succeeds, the subscription ends. Nobody
                // else is before the waiter, so nothing is missed meanwhile.
                sleep(TURN).await;
            }
            view = loop {
                if let Ok(view) = self.etcd.view(&self.keys, part(self.place.as_deref())).await {
                    break view;
                }
                sleep(pauses.next().expect("the pauses never end")).await;
            };
            if was_deleted {
                pauses = self::pauses(LONGEST_PAUSE);
            } else {
                sleep(pauses.next().expect("the pauses never end")).await;
            }
            // After the read: a waiter that tries now sees all that the next watch leaves out.
            if awaited == Awaited::Queue {
                self.freed.notify_one();
            }
        }
    }

    /// Waits for deletions since a revision, and notifies the waiter at once. A watch of the queue goes
    /// on for a waiter in no order. Returns whether there was a deletion before the end of the watch.
    async fn notify_of_deletions(&self, awaited: &Awaited, from: i64) -> bool {
        let (key, range_end) = match awaited {
            Awaited::Turn(key, _) | Awaited::Key(key) => (key.clone(), None),
            Awaited::Queue => (self.keys.queue(), Some(Text(self.keys.queue_end()))),
        };
        let create_request =
            WatchCreate { key: Text(key), range_end, start_revision: from, filters: ["NOPUT"] };
        let request = WatchRequest { create_request };
        let Ok(mut messages) = self.etcd.connection.stream("watch", &request).await else {
            return false;
        };
        let mut was_deleted = false;
        while let Some(Streamed { result }) = messages.next::<Streamed<WatchReply>>().await {
            if !result.events.is_empty() {
                if let (Some(place), Awaited::Turn(_, own)) = (&self.place, awaited) {
                    self.etcd.own.set_turn(place, *own);
                }
                self.freed.notify_one();
                was_deleted = true;
            }
            // Another key may be awaited now.
            if result.canceled || was_deleted && self.place.is_some() {
                break;
            }
        }
        was_deleted
    }
}

//! The watches by which waiters are notified.

use std::sync::Arc;

use fence::{Holder, ResourceName};
use tokio::sync::Notify;

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
    follow::{Change, Watcher, follow},
    terms::Order,
};

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
    let view = etcd.connection.view(&keys, part(place.as_deref())).await?;
    let freed = Arc::new(Notify::new());
    let waiter = Waiter { etcd, keys, place, freed: freed.clone() };
    if waiter.is_oldest(&view) {
        waiter.freed.notify_one();
    }
    let task = tokio::spawn(follow(waiter, view));
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
    /// The key before this one of the waiter is deleted. Then the waiter's is the oldest, unless another
    /// waiter has left.
    Turn(String, OwnKey),
    /// The own key, which is the oldest, is deleted.
    Key(String),
    /// Any key of the queue is deleted.
    Queue,
}

fn part(place: Option<&str>) -> Part {
    // The owner's key is read for the revision only.
    if place.is_some() { Part::All } else { Part::Owner }
}

impl Waiter {
    fn is_oldest(&self, view: &View) -> bool {
        self.place.as_deref().is_some_and(|place| view.position(place) == Some(0))
    }

    /// What the waiter waits for, as a look shows.
    fn awaited(&self, view: &View) -> Awaited {
        let position = self.place.as_deref().and_then(|place| view.position(place));
        match position {
            Some(0) => Awaited::Key(view.queue[0].key.0.clone()),
            Some(ahead) => {
                let before = view.queue[ahead - 1].key.0.clone();
                Awaited::Turn(before, OwnKey::from(&view.queue[ahead]))
            }
            None => Awaited::Queue,
        }
    }
}

impl Watcher for Waiter {
    type Seen = View;

    async fn look(&self) -> Option<View> {
        let part = part(self.place.as_deref());
        self.etcd.connection.view(&self.keys, part).await.ok()
    }

    /// Waits for deletions. A watch of the queue goes on for a waiter in no order.
    async fn change(&self, view: &View) -> Change {
        let awaited = self.awaited(view);
        let (key, range_end) = match &awaited {
            Awaited::Turn(key, _) | Awaited::Key(key) => (key.clone(), None),
            Awaited::Queue => (self.keys.queue(), Some(Text(self.keys.queue_end()))),
        };
        let start_revision = view.header.revision + 1;
        let create_request =
            WatchCreate { key: Text(key), range_end, start_revision, filters: ["NOPUT"] };
        let request = WatchRequest { create_request };
        let Ok(mut messages) = self.etcd.connection.stream("watch", &request).await else {
            return Change::Lost;
        };
        let mut change = Change::Lost;
        while let Some(Streamed { result }) = messages.next::<Streamed<WatchReply>>().await {
            if !result.events.is_empty() {
                change = Change::Seen;
                if let (Some(place), Awaited::Turn(_, own)) = (&self.place, &awaited) {
                    self.etcd.own.change(place, |known| known.turn = Some(*own));
                    change = Change::Turn;
                }
                self.freed.notify_one();
            }
            // Another key may be awaited now.
            if result.canceled || change != Change::Lost && self.place.is_some() {
                break;
            }
        }
        change
    }

    /// A waiter that tries now sees all that the next watch leaves out.
    fn looked(&self, before: &View, now: &View) {
        if self.is_oldest(now) || self.awaited(before) == Awaited::Queue {
            self.freed.notify_one();
        }
    }
}

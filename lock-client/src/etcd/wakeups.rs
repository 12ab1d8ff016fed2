//! The watches by which waiters are notified.

use std::sync::Arc;

use fence::{Holder, ResourceName};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::{
    client::Etcd,
    keys::Keys,
    messages::{Event, Streamed, WatchReply, bytes},
    view::{Part, View},
};
use crate::{
    backend::{BackendError, Wakeups},
    follow::{Change, Watcher, follow},
    terms::Order,
};

pub(super) async fn subscribe(
    etcd: &Etcd,
    name: &ResourceName,
    holder: &Holder,
    order: Order,
) -> Result<Wakeups, BackendError> {
    let (etcd, keys) = (etcd.clone(), Keys::new(name));
    let place = (order == Order::Fair).then(|| keys.place(holder));
    // Watches begin behind this revision, so that nothing is missed from now on.
    let view = etcd.tries.view(&keys, part(place.as_deref())).await?;
    let freed = Arc::new(Notify::new());
    let waiter = Waiter { etcd, keys, place, freed: freed.clone() };
    if waiter.position(&view) == Some(0) {
        waiter.freed.notify_one();
    }
    let task = tokio::spawn(follow(waiter, view));
    Ok(Wakeups::new(freed, AbortOnDropHandle::new(task)))
}

struct Waiter {
    etcd: Etcd,
    keys: Keys,
    /// The key of a waiter in the queue.
    place: Option<String>,
    freed: Arc<Notify>,
}

fn part(place: Option<&str>) -> Part {
    // The owner's key is read for the revision only.
    if place.is_some() { Part::All } else { Part::Owner }
}

impl Waiter {
    fn position(&self, view: &View) -> Option<usize> {
        self.place.as_deref().and_then(|place| view.position(place))
    }
}

impl Watcher for Waiter {
    type Seen = View;

    async fn look(&self) -> Option<View> {
        let part = part(self.place.as_deref());
        self.etcd.tries.view(&self.keys, part).await.ok()
    }

    /// Waits for deletions: of the key before the own one, of the own key if that is the oldest, or of
    /// any key of the queue. It is the own turn if the key before was the owner's. A waiter's key is put
    /// again when it becomes the owner's. A watch of the queue goes on for a waiter in no order.
    async fn change(&self, view: &mut View) -> Change {
        let position = self.position(view);
        let key = position.map(|position| &view.queue[position.saturating_sub(1)].key.0);
        let (key, range_end) = match key {
            Some(key) => (key.clone(), None),
            None => (self.keys.queue(), Some(bytes(&self.keys.queue_end()))),
        };
        let mut is_owners = position == Some(1);
        let filters: &[_] = if position >= Some(2) { &[] } else { &["NOPUT"] };
        let request = json!({ "create_request": {
            "key": bytes(&key), "range_end": range_end,
            "start_revision": view.header.revision + 1, "filters": filters,
        } });
        let Ok(mut messages) = self.etcd.tries.stream("watch", &request).await else {
            return Change::Lost;
        };
        let mut change = Change::Lost;
        while let Some(Streamed { result }) = messages.next::<Streamed<WatchReply>>().await {
            is_owners |= result.events.iter().any(|event| !event.is_deletion());
            if result.events.iter().any(Event::is_deletion) {
                change = Change::Seen;
                match position {
                    Some(position @ 1..) if is_owners => {
                        let own = &view.queue[position];
                        self.etcd.own.change(&own.key.0, |known| known.turn = Some(own.clone()));
                        change = Change::Turn;
                        self.freed.notify_one();
                    }
                    // Another waiter has left, and the lock is held.
                    Some(1..) => {}
                    _ => self.freed.notify_one(),
                }
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
        if self.position(now) == Some(0) || self.position(before).is_none() {
            self.freed.notify_one();
        }
    }
}

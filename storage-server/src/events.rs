//! The server's decisions as they happen, for the clients that watch.
//!
//! A ring keeps the last decisions, so that a client whose connection broke misses none: it names the last one
//! that it has seen. Until the first client watches, and from a minute after the last one on, nothing is kept,
//! and a decision costs the committer one atomic load.

mod decision;
mod event_id;
mod ring;
mod watcher;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use tokio::sync::watch;

use self::ring::{Kept, Ring};
pub(crate) use self::{decision::Decision, event_id::EventId, watcher::Watcher};
use crate::audit::time_now;

/// Where the committer publishes its decisions, and clients watch them. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether a client watches, or did so less than a minute ago.
    are_kept: AtomicBool,
    ring: watch::Sender<Ring>,
}

impl Events {
    /// Publishes decisions that are durable. Without a client that watches, it does nothing.
    pub(crate) fn publish<'a>(&self, decisions: impl Iterator<Item = Decision<'a>>) {
        let Shared { are_kept, ring } = &*self.0;
        if !are_kept.load(Ordering::Acquire) {
            return;
        }
        let (run, time) = (ring.borrow().run(), time_now());
        let decisions: Vec<_> = decisions.map(|it| Kept::new(run, &time, &it)).collect();
        let now = Instant::now();
        ring.send_if_modified(|ring| {
            // A client that comes now waits for this lock, and then has all later decisions kept.
            let are_watched = ring.note_watchers(self.watchers(), now);
            if are_watched {
                ring.keep(decisions);
            } else {
                are_kept.store(false, Ordering::Release);
            }
            are_watched
        });
    }

    /// Watches the decisions after this one, or from now on. `None` if as many clients watch as may.
    pub(crate) fn watch(&self, after: Option<EventId>, max_watchers: usize) -> Option<Watcher> {
        let Shared { are_kept, ring } = &*self.0;
        let receiver = ring.subscribe();
        if self.watchers() > max_watchers {
            return None;
        }
        let mut place = None;
        ring.send_if_modified(|ring| {
            are_kept.store(true, Ordering::Release);
            ring.note_watchers(self.watchers(), Instant::now());
            place = Some(ring.place(after));
            false
        });
        Some(Watcher::new(receiver, place.expect("it was found"), after.is_some()))
    }

    /// How many clients watch.
    pub(crate) fn watchers(&self) -> usize {
        self.0.ring.receiver_count()
    }
}

#[cfg(test)]
mod tests {
    use std::iter::from_fn;

    use super::*;

    #[test]
    fn nothing_is_made_of_decisions_that_nobody_watches() {
        let events = Events::default();
        let mut asked = 0;
        let mut publish = |events: &Events| {
            events.publish(from_fn(|| {
                asked += 1;
                None
            }));
            asked
        };
        assert_eq!(publish(&events), 0);
        let watcher = events.watch(None, 1).unwrap();
        assert_eq!(publish(&events), 1, "the control");
        assert!(events.watch(None, 1).is_none(), "there is no place for another client");
        drop(watcher);
        assert_eq!(publish(&events), 2, "the client may come back");
    }
}

//! What a client remembers of its own holders that acquire in the fair order.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use super::messages::KeyValue;
use crate::clock::Moment;

/// How many may be remembered before the first look for those that try no more.
const FIRST_SWEEP: usize = 64;
/// How long a holder is remembered after its last try. The release of others takes a request more.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);

/// The key of a waiter, as a client has last seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnKey {
    pub(super) created: i64,
    pub(super) changed: i64,
}

impl From<&KeyValue> for OwnKey {
    fn from(key: &KeyValue) -> Self {
        Self { created: key.create_revision, changed: key.mod_revision }
    }
}

/// The holders of a client that acquire in the fair order, by their keys. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Waiters(Arc<Mutex<Remembered>>);

#[derive(Default)]
struct Remembered {
    waiters: HashMap<String, Waiter>,
    /// How many there may be before the next sweep.
    sweep_above: usize,
}

struct Waiter {
    /// The own key, since a watch has shown that the owner's is gone.
    turn: Option<OwnKey>,
    /// Whether a request to queue had no answer, and may arrive later.
    may_queue_later: bool,
    tried: Moment,
}

impl Waiter {
    fn new() -> Self {
        Self { turn: None, may_queue_later: false, tried: Moment::now() }
    }
}

/// A request to queue. If it is dropped, the request had no answer.
pub(super) struct Queueing<'a> {
    waiters: &'a Waiters,
    place: &'a str,
    pub(super) is_answered: bool,
}

impl Drop for Queueing<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            // A release may have forgotten the holder meanwhile.
            let mut remembered = self.waiters.remembered();
            let waiter = remembered.waiters.entry(self.place.to_owned());
            waiter.or_insert_with(Waiter::new).may_queue_later = true;
        }
    }
}

impl Waiters {
    /// Remembers a holder that tries. If a watch has shown that it is the holder's turn, this returns
    /// the holder's key, once.
    pub(super) fn remember(&self, place: &str) -> Option<OwnKey> {
        let mut remembered = self.remembered();
        let Remembered { waiters, sweep_above } = &mut *remembered;
        if waiters.len() > *sweep_above {
            waiters.retain(|_, waiter| waiter.tried.elapsed() < REMEMBERED_FOR);
            // So that each is looked at twice, in the mean.
            *sweep_above = FIRST_SWEEP.max(2 * waiters.len());
        }
        let waiter = waiters.entry(place.to_owned()).or_insert_with(Waiter::new);
        waiter.tried = Moment::now();
        waiter.turn.take()
    }

    /// Remembers that it seems to be the turn of a holder.
    pub(super) fn set_turn(&self, place: &str, own: OwnKey) {
        if let Some(waiter) = self.remembered().waiters.get_mut(place) {
            waiter.turn = Some(own);
        }
    }

    pub(super) fn queueing<'a>(&'a self, place: &'a str) -> Queueing<'a> {
        Queueing { waiters: self, place, is_answered: false }
    }

    /// Forgets a holder. Returns whether it may be queued later, by a request that had no answer. So may
    /// one that this client does not remember.
    pub(super) fn forget(&self, place: &str) -> bool {
        self.remembered().waiters.remove(place).is_none_or(|waiter| waiter.may_queue_later)
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().expect("nothing panics while it holds this")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_that_was_forgotten_may_be_queued_by_an_earlier_request() {
        for is_answered in [true, false] {
            let waiters = Waiters::default();
            waiters.remember("own");
            let mut queueing = waiters.queueing("own");
            assert!(!waiters.forget("own"));
            queueing.is_answered = is_answered;
            drop(queueing);
            waiters.remember("own");
            assert_eq!(waiters.forget("own"), !is_answered);
        }
    }
}

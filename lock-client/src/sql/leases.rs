//! The locks that a client may hold, and the task that keeps a connection for them.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use fence::Holder;
use tokio::task::JoinHandle;

use crate::{clock::Moment, ttl::Ttl};

/// How long the connection is kept for a lock that is held no more. The next grant may follow soon.
const PAUSE_BETWEEN_LOCKS: Duration = Duration::from_secs(1);

/// The locks that a client may hold.
#[derive(Default)]
pub(super) struct Leases(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Until when each lock needs a connection: it expires then, or is held no more.
    until: HashMap<Holder, Moment>,
    /// The locks that were detached, until they expire. A renewal of them may still be under way.
    detached: HashMap<Holder, Moment>,
    /// The task that keeps the connection. It may have ended with its runtime.
    keeper: Option<JoinHandle<()>>,
}

impl Leases {
    /// Records that a lock was granted, and may be held for so long.
    pub(super) fn hold(&self, holder: &Holder, ttl: Ttl) {
        let mut kept = self.kept();
        kept.detached.remove(holder);
        kept.until.insert(holder.clone(), Moment::now() + ttl.as_duration());
    }

    /// Records that a lock was renewed, and may be held for so long, unless it was detached meanwhile.
    pub(super) fn hold_on(&self, holder: &Holder, ttl: Ttl) {
        let mut kept = self.kept();
        if !kept.detached.contains_key(holder) {
            kept.until.insert(holder.clone(), Moment::now() + ttl.as_duration());
        }
    }

    /// Records that a lock is left to another client.
    pub(super) fn detach(&self, holder: &Holder) {
        let mut kept = self.kept();
        if let Some(until) = kept.until.get(holder).copied() {
            kept.detached.insert(holder.clone(), until);
        }
        kept.let_go(holder);
    }

    /// Records that a lock is taken over. Its renewals count again.
    pub(super) fn adopt(&self, holder: &Holder) {
        self.kept().detached.remove(holder);
    }

    /// Records that a lock is not held any more, or not by this client.
    pub(super) fn let_go(&self, holder: &Holder) {
        self.kept().let_go(holder);
    }

    pub(super) fn are_held(&self) -> bool {
        self.kept().are_held()
    }

    /// Starts the task, unless it runs.
    pub(super) fn start_keeper(&self, start: impl FnOnce() -> JoinHandle<()>) {
        let keeper = &mut self.kept().keeper;
        if keeper.as_ref().is_none_or(JoinHandle::is_finished) {
            *keeper = Some(start());
        }
    }

    /// Ends the task if no lock is held, and returns whether it has ended. No lock is recorded while
    /// `give_up` gives up the connection.
    pub(super) fn end_keeper(&self, give_up: impl FnOnce()) -> bool {
        let mut kept = self.kept();
        let ends = !kept.are_held();
        if ends {
            kept.keeper = None;
            give_up();
        }
        ends
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("nothing panics while it holds this")
    }
}

impl Kept {
    fn let_go(&mut self, holder: &Holder) {
        if let Some(until) = self.until.get_mut(holder) {
            *until = (*until).min(Moment::now() + PAUSE_BETWEEN_LOCKS);
        }
    }

    fn are_held(&mut self) -> bool {
        self.detached.retain(|_, until| !until.has_passed());
        self.until.retain(|_, until| !until.has_passed());
        !self.until.is_empty()
    }
}

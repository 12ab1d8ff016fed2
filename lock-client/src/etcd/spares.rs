//! Leases of a client that one owner after the other uses.
//!
//! A lease is a durable write of its own, before the key and after it. So a client that acquires
//! again and again keeps a few leases. Only a keep-alive gives them their full time, which etcd does
//! not write to its disk. A spare that nobody uses expires by itself.
//!
//! An owner passes its lease on only if each of its requests was answered. Otherwise an attempt may
//! arrive late, and would acquire the lock for an owner that is gone. Then the lease is revoked.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard},
};

use fence::Holder;

/// How many leases a client keeps at most.
const MOST: usize = 16;

/// The spare leases of a client. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Spares {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    free: Vec<Spare>,
    /// The spares in use, by their users.
    used: HashMap<Holder, Used>,
    /// Whether a holder has released a lock. Then the next may follow.
    has_released: bool,
    is_making: bool,
}

#[derive(Clone, Copy)]
struct Spare {
    lease: i64,
    seconds: i64,
}

struct Used {
    spare: Spare,
    /// Whether each request of its user was answered, and none is under way.
    is_settled: bool,
    attempts: u32,
}

impl Spares {
    /// Returns the lease that this holder uses already, or else a free one of this time, which it uses
    /// from now on.
    pub(super) fn take(&self, holder: &Holder, seconds: i64) -> Option<i64> {
        let mut state = self.state();
        if let Some(used) = state.used.get_mut(holder) {
            used.is_settled = false;
            used.attempts += 1;
            return Some(used.spare.lease);
        }
        let free = state.free.iter().rposition(|spare| spare.seconds == seconds)?;
        let spare = state.free.remove(free);
        let used = Used { spare, is_settled: false, attempts: 1 };
        state.used.insert(holder.clone(), used);
        Some(spare.lease)
    }

    /// The lease that this holder uses.
    pub(super) fn used(&self, holder: &Holder) -> Option<i64> {
        self.state().used.get(holder).map(|used| used.spare.lease)
    }

    /// Records that the attempt was answered. After a repeated attempt, an earlier one may still be
    /// under way.
    pub(super) fn settle(&self, holder: &Holder) {
        if let Some(used) = self.state().used.get_mut(holder) {
            used.is_settled = used.attempts == 1;
        }
    }

    /// Begins the release of a holder. Returns whether all its earlier requests were answered.
    pub(super) fn begin_release(&self, holder: &Holder) -> bool {
        self.state().has_released = true;
        self.unsettle(holder)
    }

    /// Begins a request of a holder. Returns whether all its earlier requests were answered.
    pub(super) fn unsettle(&self, holder: &Holder) -> bool {
        let mut state = self.state();
        let used = state.used.get_mut(holder);
        used.is_some_and(|used| mem::replace(&mut used.is_settled, false))
    }

    /// Makes the lease of a holder free, whose key is gone and none of whose requests is under way.
    pub(super) fn give_back(&self, holder: &Holder) {
        let mut state = self.state();
        if let Some(used) = state.used.remove(holder) {
            state.free.push(used.spare);
        }
    }

    /// Forgets the lease of a holder: it has ended, or another client keeps it alive.
    pub(super) fn forget(&self, holder: &Holder) {
        self.state().used.remove(holder);
    }

    /// Whether another lease should be made. A client that acquires a single lock needs none. Call
    /// [`made`](Self::made) afterwards.
    pub(super) fn needs_more(&self, seconds: i64) -> bool {
        let mut state = self.state();
        if !state.has_released
            || state.is_making
            || state.used.len() >= MOST
            || state.free.iter().any(|spare| spare.seconds == seconds)
        {
            return false;
        }
        if state.used.len() + state.free.len() >= MOST {
            // It expires by itself.
            state.free.remove(0);
        }
        state.is_making = true;
        true
    }

    /// Adds a lease of this time that was made; `None` if that failed.
    pub(super) fn made(&self, lease: Option<i64>, seconds: i64) {
        let mut state = self.state();
        state.is_making = false;
        state.free.extend(lease.map(|lease| Spare { lease, seconds }));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this")
    }
}

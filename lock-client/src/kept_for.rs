//! The locks that a client holds, for which it keeps a connection.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use fence::Holder;

use crate::{clock::Moment, mutex::Locked, ttl::Ttl};

/// How long the connection is kept for a lock that is held no more. The next grant may follow soon.
const PAUSE_BETWEEN_LOCKS: Duration = Duration::from_secs(1);

/// Until when each lock needs the connection.
#[derive(Default)]
pub(crate) struct KeptFor(Mutex<HashMap<Holder, Moment>>);

impl KeptFor {
    /// Records a grant.
    pub(crate) fn begin(&self, holder: &Holder, ttl: Ttl) {
        self.0.locked().insert(holder.clone(), Moment::now() + ttl.as_duration());
    }

    /// Records a renewal, unless the lock was left to another client meanwhile.
    pub(crate) fn extend(&self, holder: &Holder, ttl: Ttl) {
        if let Some(until) = self.0.locked().get_mut(holder) {
            *until = Moment::now() + ttl.as_duration();
        }
    }

    /// Records that a lock is not held any more, or not by this client.
    pub(crate) fn let_go(&self, holder: &Holder) {
        if let Some(until) = self.0.locked().get_mut(holder) {
            *until = (*until).min(Moment::now() + PAUSE_BETWEEN_LOCKS);
        }
    }

    /// Records that a lock is left to another client.
    pub(crate) fn detach(&self, holder: &Holder) {
        self.0.locked().remove(holder);
    }

    /// Records that a lock is taken over, and needs the connection until this moment at least.
    pub(crate) fn adopt(&self, holder: &Holder, at_least: Moment) {
        let mut leases = self.0.locked();
        let until = leases.entry(holder.clone()).or_insert(at_least);
        *until = at_least.max(*until);
    }

    pub(crate) fn are_held(&self) -> bool {
        let mut leases = self.0.locked();
        leases.retain(|_, until| !until.has_passed());
        !leases.is_empty()
    }
}

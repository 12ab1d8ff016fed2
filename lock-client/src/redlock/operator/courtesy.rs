//! The lock by which services that watch one cluster keep out of each other's way.
//!
//! The scripts compare before they change anything, so several services do no harm. But all of them would
//! wait and copy. The lock is a courtesy: a service that can't tell whether another has it does its work.

use std::time::Duration;

use super::{Operator, servers::Sight};
use crate::{
    AcquireError, Lease, Locks, Moment, Terms, Ttl,
    redlock::{Redlock, members::Members, patience::Patience},
};

/// The reserved name of the lock.
const NAME: &str = "watcher";
/// Its ttl, if the cluster grants that much.
const TTL_MS: u64 = 10_000;

/// The lock of the service that works.
pub(super) struct Courtesy {
    locks: Locks,
    lease: Option<Lease>,
    /// Until when another service may have it.
    other_until: Option<Moment>,
}

impl Courtesy {
    pub(super) fn new(operator: &Operator) -> Self {
        let members = Members::new(operator.named.clone(), Patience(operator.limits));
        let locks = Locks::new(Redlock::with(members).of_reserved_locks());
        Self { locks, lease: None, other_until: None }
    }

    /// Whether this service has the lock.
    pub(super) fn is_held(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.token().is_ok())
    }

    /// Whether no other service has the lock, as far as is known.
    pub(super) async fn is_ours(&mut self, sight: &Sight) -> bool {
        if self.is_held() {
            return true;
        }
        self.lease = None;
        // Without a majority, nobody gets it, and a change may be half done. The other service may make
        // that change: then it still has the lock.
        let is_free = self.other_until.is_none_or(Moment::has_passed);
        let Some((roster, voters)) = sight.newest() else { return is_free };
        let longest = Duration::from_millis(roster.max_ttl_ms.min(TTL_MS));
        let (Ok(ttl), true) = (Ttl::new(longest), voters >= roster.majority()) else {
            return is_free;
        };
        let name = NAME.parse().expect("it is a name");
        match self.locks.acquire(&name, Terms::new(ttl).no_wait()).await {
            Ok(lease) => {
                self.lease = Some(lease);
                true
            }
            Err(AcquireError::Contended { .. }) => {
                self.other_until = Some(Moment::now() + longest);
                false
            }
            Err(_) => is_free,
        }
    }
}

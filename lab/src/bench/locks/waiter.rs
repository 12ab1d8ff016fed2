//! How each kind of lock waits, as seen by Redis.

use crate::bench::peer::{Fenced, Peer, RsLock};

/// A lock client whose clients can wait. The number of its tries shows when all of them wait.
pub(super) trait Waiter: Peer {
    /// The command that tries to acquire a lock.
    const TRY: &'static str;

    /// The number of tries that Redis sees until these waiters, of these clients, all wait.
    fn tries_until_waiting(&self, waiters: usize, clients: usize) -> usize;
}

impl Waiter for Fenced {
    const TRY: &'static str = "evalsha";

    /// Each waiter tries once, and once more after it has subscribed. In a fair queue every waiter
    /// subscribes, otherwise one of each client.
    fn tries_until_waiting(&self, waiters: usize, clients: usize) -> usize {
        waiters + if self.is_fair() { waiters } else { waiters.min(clients) }
    }
}

impl Waiter for RsLock {
    const TRY: &'static str = "set";

    fn tries_until_waiting(&self, waiters: usize, _clients: usize) -> usize {
        waiters
    }
}

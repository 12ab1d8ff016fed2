//! The terms of an acquire.

use std::time::Duration;

use crate::ttl::Ttl;

/// How long a fair waiter may be silent until it is skipped, where the service's queue knows only that.
pub(crate) const QUEUE_PATIENCE: Duration = Duration::from_secs(3);
/// How long a fair waiter keeps its place without a try, where its client's session holds the place.
pub(crate) const PLACE_PATIENCE: Duration = Duration::from_secs(15);
/// How long a waiter sleeps at most until it tries without a notification.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// The terms of an acquire: the ttl, how long to wait and in which order, and how the lease is
/// renewed. A [`Ttl`] alone means [`Terms::new`].
///
/// ```
/// # use std::time::Duration;
/// # use lock_client::{Terms, Ttl};
/// # fn main() -> Result<(), lock_client::InvalidTtl> {
/// let terms = Terms::new(Ttl::from_secs(30)?).wait(Duration::from_secs(5)).fair();
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Terms {
    pub(crate) ttl: Ttl,
    pub(crate) wait: Wait,
    pub(crate) order: Order,
    pub(crate) renewal: Renewal,
    pub(crate) detachable: bool,
}

/// How long an acquire waits while another client holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    AtMost(Duration),
    Forever,
}

/// The order in which waiters acquire a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// None: the first client that tries after the release acquires the lock.
    Unordered,
    /// First come, first served.
    Fair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    None,
    /// At a third of the ttl or a little earlier, again and again, until `max_hold` ends.
    Automatic {
        max_hold: Duration,
    },
}

impl Terms {
    /// Waits as long as it takes, in no order, and renews the lease as long as it lives.
    pub fn new(ttl: Ttl) -> Self {
        Self {
            ttl,
            wait: Wait::Forever,
            order: Order::Unordered,
            renewal: Renewal::Automatic { max_hold: Duration::MAX },
            detachable: false,
        }
    }

    /// Acquires the lock only if it is free.
    pub fn no_wait(self) -> Self {
        Self { wait: Wait::No, ..self }
    }

    /// Waits at most this long.
    pub fn wait(self, at_most: Duration) -> Self {
        Self { wait: Wait::AtMost(at_most), ..self }
    }

    /// First come, first served: waiters wait in a queue that the lock service keeps. While the
    /// queue is not empty, clients that did not ask for this order don't acquire the lock either.
    ///
    /// A waiter that crashed is skipped:
    /// - after 3 seconds in Redis, PostgreSQL, MariaDB and SQLite,
    /// - after 15 seconds in etcd, or when its ttl ends, if that is sooner,
    /// - when its ttl ends in ZooKeeper.
    ///
    /// A waiter near the head that is silent for longer loses its place, and queues again at the end.
    /// Redlock has no such order, and rejects the request.
    pub fn fair(self) -> Self {
        Self { order: Order::Fair, ..self }
    }

    /// Renews the lease at most this long, counted from when the lock was requested. Then the lease
    /// is lost. It is for work that may hang. Undoes [`without_renewal`](Self::without_renewal).
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self { renewal: Renewal::Automatic { max_hold }, ..self }
    }

    /// Does not renew the lease automatically. It ends with its ttl, unless [`Lease::renew`] is
    /// called. Undoes [`max_hold`](Self::max_hold).
    ///
    /// [`Lease::renew`]: crate::Lease::renew
    pub fn without_renewal(self) -> Self {
        Self { renewal: Renewal::None, ..self }
    }

    /// Acquires a lock that another process may take over ([`Lease::detach`], [`Locks::adopt`]). In
    /// etcd and ZooKeeper, such a lock has a session of its own, because two processes can't share
    /// one.
    ///
    /// [`Lease::detach`]: crate::Lease::detach
    /// [`Locks::adopt`]: crate::Locks::adopt
    pub fn detachable(self) -> Self {
        Self { detachable: true, ..self }
    }

    /// The ttl of the first request. It is no longer than the lock may be held.
    pub(crate) fn first_ttl(self) -> Ttl {
        match self.renewal {
            Renewal::Automatic { max_hold } => self.ttl.at_most(max_hold),
            Renewal::None => self.ttl,
        }
    }
}

impl From<Ttl> for Terms {
    fn from(ttl: Ttl) -> Self {
        Self::new(ttl)
    }
}

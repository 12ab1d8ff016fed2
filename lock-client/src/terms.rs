//! The terms on which a lock is asked for.

use std::time::Duration;

use crate::Ttl;

/// The terms on which a lock is asked for: for how long, how long to wait for it, in which order, and
/// how it is kept.
///
/// From a [`Ttl`] alone they are: wait until it is had, in no order, and renew it as long as the
/// lease lives.
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
}

/// How long an acquire waits while somebody else has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    AtMost(Duration),
    Forever,
}

/// In which order waiters get a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// None: the first client that asks after the release gets the lock.
    Unordered,
    /// First come, first served.
    Fair,
}

/// How a lease is kept from running out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    None,
    /// At a third of the ttl or a little earlier, again and again, for so long altogether.
    Automatic {
        max_hold: Duration,
    },
}

impl Terms {
    /// Waits until the lock is had, in no order, and renews it as long as the lease lives.
    pub fn new(ttl: Ttl) -> Self {
        Self {
            ttl,
            wait: Wait::Forever,
            order: Order::Unordered,
            renewal: Renewal::Automatic { max_hold: Duration::MAX },
        }
    }

    /// Takes the lock only if it is free.
    pub fn no_wait(self) -> Self {
        Self { wait: Wait::No, ..self }
    }

    /// Waits for so long at most.
    pub fn wait(self, at_most: Duration) -> Self {
        Self { wait: Wait::AtMost(at_most), ..self }
    }

    /// First come, first served, among all who ask for this: waiters stand in a queue that the lock
    /// service keeps. While somebody stands there, those who didn't ask for it don't get the lock
    /// either. A waiter that has crashed is skipped after 3 seconds; one that was paused for longer
    /// has lost its place, and stands at the end again. [`Redlock`](crate::backend::Redlock) has no such
    /// order, and refuses.
    pub fn fair(self) -> Self {
        Self { order: Order::Fair, ..self }
    }

    /// Renews the lease for so long at most, counted from when the lock was asked for: then it is
    /// lost. For work that may hang. Undoes [`without_renewal`](Self::without_renewal).
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self { renewal: Renewal::Automatic { max_hold }, ..self }
    }

    /// Doesn't renew the lease by itself: it ends with its ttl, unless [`Lease::renew`] is called.
    /// Undoes [`max_hold`](Self::max_hold).
    ///
    /// [`Lease::renew`]: crate::Lease::renew
    pub fn without_renewal(self) -> Self {
        Self { renewal: Renewal::None, ..self }
    }

    /// What is asked for at first: no more than the lock may be held for.
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

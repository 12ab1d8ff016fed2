//! What a lock service has to do.
//!
//! Waiting, deadlines, retries, renewal and leases are written once, above this trait; a backend says
//! only how to try, renew, reissue and release, and how to hear of a lock that was freed.

use std::{any::Any, fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use fence::{Holder, ResourceName, Token};
use tokio::sync::Notify;

use crate::{Order, Ttl};

/// A lock service that hands out a token with every grant.
#[async_trait]
pub trait Backend: Debug + Send + Sync + 'static {
    /// Tries once to take the lock.
    ///
    /// If the holder already has it, this answers the same token and grant again and sets the full
    /// ttl: a try whose reply was lost may be repeated. If somebody else has it and the order is
    /// fair, the holder stands in the queue from then on, and keeps its place as long as it tries
    /// again every second.
    ///
    /// What came of a try that isn't answered as granted, or whose future is dropped, is to be
    /// released, unless the backend [does so by itself](Self::undoes_its_tries).
    async fn try_acquire(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
        order: Order,
    ) -> Result<Attempt, BackendError>;

    /// Sets the full ttl if the lock still belongs to this ownership, and answers its present
    /// token; `None` if it doesn't.
    async fn renew(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        ttl: Ttl,
    ) -> Result<Option<Token>, BackendError>;

    /// Swaps the token for a higher one, which is above `above` too, if the lock still belongs to this
    /// ownership, and answers it; `None` if it doesn't. The ttl stays as it is.
    async fn reissue(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        above: Token,
    ) -> Result<Option<Token>, BackendError>;

    /// Frees the lock if the holder has it, and answers whether it had. If it stands in the queue, it
    /// leaves. The token is the last that the holder was told, if any.
    async fn release(
        &self,
        name: &ResourceName,
        holder: &Holder,
        token: Option<Token>,
    ) -> Result<bool, BackendError>;

    /// Subscribes to what a waiter has to hear: from when this is answered, nothing is missed.
    async fn subscribe(
        &self,
        name: &ResourceName,
        holder: &Holder,
        order: Order,
    ) -> Result<Wakeups, BackendError>;

    /// Tells what the lock is at this moment.
    async fn status(&self, name: &ResourceName) -> Result<Status, BackendError>;

    /// Tells whether it releases by itself what a try has taken that it didn't answer as granted. Then
    /// it may take holders of its own for its tries, which begin with the one that it was given.
    fn undoes_its_tries(&self) -> bool {
        false
    }

    /// Waits until that is done which this has begun by itself in the background.
    async fn settled(&self) {}
}

/// What came of a try to take a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The lock is the holder's.
    Granted {
        /// The fencing token.
        token: Token,
        /// The ownership that it belongs to.
        ownership: Ownership,
    },
    /// Somebody else has it, or is the next to have it.
    Busy {
        /// For how long yet, unless renewed or released; `None` if it has no end.
        remaining: Option<Duration>,
    },
    /// Nobody is seen to have it: each of several who tried at once got a part of it, and gave it back.
    /// To be tried again after a random time.
    Split {
        /// For how long, at most, somebody has it all the same.
        remaining: Option<Duration>,
    },
}

/// One ownership of a lock. The grant tells it from another of the same holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Whose it is.
    pub holder: Holder,
    /// The counter as it was when the lock was given; of several nodes, the highest of theirs.
    pub grant: Token,
}

/// A subscription to the freeing of a lock, which ends when this is dropped.
#[must_use]
pub struct Wakeups {
    freed: Arc<Notify>,
    _subscription: Box<dyn Any + Send + Sync>,
}

impl Wakeups {
    /// Makes a subscription: the backend notifies when the lock may be free, and keeps the
    /// subscription up until its guard is dropped.
    pub fn new(freed: Arc<Notify>, subscription: impl Any + Send + Sync) -> Self {
        Self { freed, _subscription: Box::new(subscription) }
    }

    /// Waits until the lock may be free: since the last time, or since the subscription.
    ///
    /// # Cancellation safety
    /// If this future is dropped, nothing is missed.
    pub async fn next(&self) {
        self.freed.notified().await;
    }
}

impl Debug for Wakeups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wakeups").finish_non_exhaustive()
    }
}

/// What a lock is at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who has it; `None` if it is free.
    pub held: Option<Held>,
    /// The last token issued; `None` if the counter doesn't exist.
    pub last_token: Option<u64>,
    /// How many stand in the queue.
    pub queued: u64,
}

/// A lock that somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The owner's token.
    pub token: Token,
    /// The owner.
    pub ownership: Ownership,
    /// For how long yet, unless renewed or released; `None` if it has no end.
    pub remaining: Option<Duration>,
}

/// Why a lock service did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// There was no answer, or none that lasts: it may have been done all the same, and may be
    /// tried again.
    #[error("no answer from the lock service: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It refused, and has done nothing. Trying again would not help.
    #[error("the lock service refused: {0}")]
    Rejected(#[source] Box<dyn std::error::Error + Send + Sync>),
}

//! What a lock service has to do.
//!
//! Waiting, deadlines, retries and leases are written once, above this trait; a backend says only
//! how to try, renew, release and wait.

pub mod redis;

use std::{fmt::Debug, time::Duration};

use async_trait::async_trait;
use fence::{Holder, ResourceName, Token};

pub use self::redis::Redis;
use crate::Ttl;

/// A lock service that hands out a token with every grant.
#[async_trait]
pub trait Backend: Debug + Send + Sync + 'static {
    /// Tries once to take the lock.
    ///
    /// If the holder already has it, this answers the same token and grant again and sets the full
    /// ttl: a try whose reply was lost may be repeated.
    async fn try_acquire(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
    ) -> Result<Attempt, BackendError>;

    /// Sets the full ttl if the lock still belongs to this ownership, and answers its present
    /// token; `None` if it doesn't.
    async fn renew(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        ttl: Ttl,
    ) -> Result<Option<Token>, BackendError>;

    /// Frees the lock if the holder has it, and answers whether it had.
    async fn release(&self, name: &ResourceName, holder: &Holder) -> Result<bool, BackendError>;

    /// Waits until the lock may be free. `remaining` is what its present owner had left, if that is
    /// known. It may return too early.
    async fn wait_until_free(&self, name: &ResourceName, remaining: Option<Duration>);

    /// Tells what the lock is at this moment.
    async fn status(&self, name: &ResourceName) -> Result<Status, BackendError>;
}

/// What came of a try to take a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The lock is the holder's.
    Granted {
        /// The fencing token.
        token: Token,
        /// The counter as it was when the lock was given.
        grant: Token,
    },
    /// Somebody else has it.
    Busy {
        /// For how long yet, unless renewed or released; `None` if it has no end.
        remaining: Option<Duration>,
    },
}

/// One ownership of a lock. The grant tells it from another of the same holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Whose it is.
    pub holder: Holder,
    /// The counter as it was when the lock was given.
    pub grant: Token,
}

/// What a lock is at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Who has it; `None` if it is free.
    pub held: Option<Held>,
    /// The last token issued; `None` if the counter doesn't exist yet.
    pub last_token: Option<u64>,
}

/// A lock that somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The owner's token.
    pub token: Token,
    /// The owner.
    pub holder: Holder,
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

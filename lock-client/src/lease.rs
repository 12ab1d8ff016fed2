//! A held lock.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use fence::{Fence, Holder, ResourceName, Token};

use crate::{
    Backend, Ttl,
    backend::{BackendError, Ownership},
    clock::Moment,
    locks::retried_until,
};

/// How long a release waits for an answer: as long as the lease lasts, within these bounds.
const RELEASE_PATIENCE: RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_secs(2);

/// A held lock: the right to act on a resource until the deadline, and the token that proves it.
///
/// The deadline is counted from before the lock was asked for, less the drift of clocks. Past it a
/// lease never claims to be held. A check of the lease is no protection, as the holder may be paused
/// right after it; the token, sent with each write, is.
///
/// A lease that is dropped is not released: the lock stays taken until its ttl is over.
#[derive(Debug)]
#[must_use = "a lease that is dropped keeps its lock taken until its ttl is over"]
pub struct Lease {
    backend: Arc<dyn Backend>,
    name: ResourceName,
    ownership: Ownership,
    ttl: Ttl,
    token: Token,
    /// `None` once the lock service said that the lock is no longer ours.
    deadline: Option<Moment>,
}

impl Lease {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        name: ResourceName,
        ownership: Ownership,
        ttl: Ttl,
        token: Token,
        asked: Moment,
    ) -> Self {
        let deadline = Some(asked + ttl.reliable());
        Self { backend, name, ownership, ttl, token, deadline }
    }

    /// The lock's name.
    pub fn name(&self) -> &ResourceName {
        &self.name
    }

    /// The holder: this one grant's owner.
    pub fn holder(&self) -> &Holder {
        &self.ownership.holder
    }

    /// How long the lease may still be relied on; nothing once it is lost or past its deadline.
    pub fn remaining(&self) -> Duration {
        self.deadline.map_or(Duration::ZERO, Moment::remaining)
    }

    /// The fencing token.
    ///
    /// # Errors
    /// [`Lost`] if the lease is lost or past its deadline.
    pub fn token(&self) -> Result<Token, Lost> {
        if self.remaining().is_zero() { Err(Lost) } else { Ok(self.token) }
    }

    /// The token and holder, as the storage wants them.
    ///
    /// # Errors
    /// [`Lost`] if the lease is lost or past its deadline.
    pub fn fence(&self) -> Result<Fence, Lost> {
        Ok(Fence { token: self.token()?, holder: self.holder().clone() })
    }

    /// Sets the full ttl again, counted from now.
    ///
    /// # Errors
    /// [`RenewError::Lost`] if the lease is lost or past its deadline: it is never taken back.
    /// [`RenewError::Unavailable`] if there was no answer: it may be repeated until the deadline.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the ttl may have been set; the deadline stays as it was.
    pub async fn renew(&mut self) -> Result<(), RenewError> {
        self.token()?;
        let asked = Moment::now();
        match self.backend.renew(&self.name, &self.ownership, self.ttl).await {
            Ok(Some(token)) => {
                self.token = token;
                self.deadline = Some(asked + self.ttl.reliable());
                Ok(self.token().map(|_| ())?)
            }
            Ok(None) => {
                self.deadline = None;
                Err(RenewError::Lost(Lost))
            }
            Err(error) => Err(RenewError::Unavailable(error)),
        }
    }

    /// Frees the lock. A reply that is lost is asked for again, until the deadline, but for 2 seconds
    /// at most. A lease past its deadline may be released too, and what comes back tells what became
    /// of it.
    ///
    /// # Errors
    /// [`BackendError`] if the lock service gave no answer. The lock is free when its ttl is over.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the lock may or may not have been freed; it is free when its ttl
    /// is over.
    pub async fn release(self) -> Result<Released, BackendError> {
        let (least, most) = RELEASE_PATIENCE.into_inner();
        let give_up = Moment::now() + self.remaining().clamp(least, most);
        let release = || self.backend.release(&self.name, &self.ownership.holder);
        match retried_until(give_up, release).await? {
            true => Ok(Released::Released),
            false => Ok(Released::NotHeld),
        }
    }
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The lock was ours, and is free now.
    Released,
    /// The lock was not ours any more: its ttl was over, or an earlier try to release it, whose
    /// reply was lost, had freed it.
    NotHeld,
}

/// The lease is lost, or past its deadline: somebody else may hold the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is lost: somebody else may hold the lock")]
pub struct Lost;

/// Why a lease was not renewed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// Stop: the lease is over.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// Try again, until the deadline.
    #[error(transparent)]
    Unavailable(BackendError),
}

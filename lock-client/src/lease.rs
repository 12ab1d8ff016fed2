//! A held lock.

mod held;
mod renewal;

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use fence::{Fence, Holder, ResourceName, Token};
use tokio::{runtime::Handle, task::AbortHandle};
use tracing::Instrument;

pub(crate) use self::held::{Granted, Held, Loss};
use crate::{
    AcquireError, Terms, Ttl,
    backend::{BackendError, Ownership},
    clock::Moment,
    retry::retried_until,
    terms::Renewal,
};

/// How long a release waits for an answer: as long as the lease lasts, within these bounds.
const RELEASE_PATIENCE: RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_secs(2);

/// A held lock: the right to act on a resource until the deadline, and the token that proves it.
///
/// The deadline is counted from before the lock was asked for, less the drift of clocks. Past it a
/// lease never claims to be held, and it is never taken back. A check of the lease is no protection,
/// as the holder may be paused right after it; the token, sent with each write, is.
///
/// Unless its [`Terms`] say otherwise, a lease renews itself at a third of its ttl, by a task that
/// ends with it. A lease can be cloned; its lock is released with the last clone: by
/// [`release`](Self::release), which tells what happened, or in the background when it is dropped.
///
/// # Lost connections
/// Renewals are tried again until the deadline. If none is answered until then, the lease is lost,
/// though the lock service may keep the lock for a little longer.
#[derive(Clone, Debug)]
#[must_use = "a lease that is dropped is released"]
pub struct Lease {
    share: Arc<Share>,
}

/// What the clones of a lease share, and what ends with the last of them.
#[derive(Debug)]
struct Share {
    held: Arc<Held>,
    renewal: Option<AbortHandle>,
    runtime: Handle,
    /// Whether the lock was released, or is left to somebody else.
    settled: bool,
}

impl Lease {
    /// Begins to keep what was granted.
    pub(crate) fn begin(granted: Granted, renewal: Renewal) -> Self {
        let held = Arc::new(Held::new(granted));
        let runtime = Handle::current();
        let renewal = match renewal {
            Renewal::None => None,
            Renewal::Automatic { max_hold } => {
                let renewing = renewal::renew_until_lost(held.clone(), max_hold);
                Some(runtime.spawn(renewing.instrument(held.span.clone())).abort_handle())
            }
        };
        Self { share: Arc::new(Share { held, renewal, runtime, settled: false }) }
    }

    /// The lock's name.
    pub fn name(&self) -> &ResourceName {
        &self.held().name
    }

    /// The holder: this one grant's owner.
    pub fn holder(&self) -> &Holder {
        &self.held().ownership.holder
    }

    /// How long the lease may still be relied on; nothing once it is lost or past its deadline.
    pub fn remaining(&self) -> Duration {
        self.held().remaining()
    }

    /// The fencing token.
    ///
    /// # Errors
    /// [`Lost`] if the lease is lost or past its deadline.
    pub fn token(&self) -> Result<Token, Lost> {
        self.held().token()
    }

    /// The token and holder, as the storage wants them.
    ///
    /// # Errors
    /// [`Lost`] if the lease is lost or past its deadline.
    pub fn fence(&self) -> Result<Fence, Lost> {
        self.held().fence()
    }

    /// Waits until the lease is lost, past its deadline, or released.
    ///
    /// The future doesn't keep the lease. After the machine was suspended, it may complete late, by as
    /// much as was left of the lease; [`token`](Self::token) tells at once.
    ///
    /// # Cancellation safety
    /// It may be dropped and asked for again.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.held().over()
    }

    /// Sets the full ttl again, counted from now. There is no need to, if the lease renews itself.
    ///
    /// # Errors
    /// [`RenewError::Lost`] if the lease is lost or past its deadline: it is never taken back.
    /// [`RenewError::LockService`] if there was no answer: it may be repeated until the deadline.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the ttl may have been set; the deadline stays as it was.
    pub async fn renew(&self) -> Result<(), RenewError> {
        self.held().renew(|| self.held().ttl).await
    }

    /// Makes sure that the token is above another, and returns it: for a storage that refused the
    /// token, as the lock service lost its counter, though the lock is still ours.
    ///
    /// It is for before anything was read with the old token. Afterwards a refusal means that
    /// somebody else was let in, and what was read is void.
    /// The storage client does it where it is right.
    ///
    /// # Errors
    /// [`RenewError::Lost`] if the lease is lost or past its deadline, [`RenewError::LockService`] if
    /// there was no answer: it may be repeated.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the lock may have a higher token, which the next renewal tells.
    pub async fn reissue(&self, above: Token) -> Result<Token, RenewError> {
        self.held().reissue(above).await
    }

    /// Acquires a lock from within this lease: its own name again is re-entry, a clone with the same
    /// token; another name is acquired as by [`Locks::acquire`](crate::Locks::acquire).
    ///
    /// # Errors
    /// [`AcquireError::Lost`] if it is its own name and the lease is lost; for another name, see
    /// [`Locks::acquire`](crate::Locks::acquire).
    ///
    /// # Cancellation safety
    /// As [`Locks::acquire`](crate::Locks::acquire).
    pub async fn acquire(
        &self,
        name: &ResourceName,
        terms: impl Into<Terms>,
    ) -> Result<Self, AcquireError> {
        if name == self.name() {
            self.token()?;
            Ok(self.clone())
        } else {
            self.held().locks.acquire(name, terms).await
        }
    }

    /// Frees the lock, if this is the last clone of the lease. A reply that is lost is asked for
    /// again, until the deadline, but for 2 seconds at most. A lease past its deadline may be
    /// released too, and what comes back tells what became of it.
    ///
    /// # Errors
    /// [`BackendError`] if the lock service gave no answer: it is asked for 2 more seconds in the
    /// background; if it doesn't answer then either, the lock is free when its ttl is over.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the lock is released in the background.
    pub async fn release(self) -> Result<Released, BackendError> {
        match Arc::into_inner(self.share) {
            Some(mut share) => share.release().await,
            None => Ok(Released::StillHeld),
        }
    }

    /// Leaves the lock taken until its ttl is over, for somebody else to go on with by
    /// [`Locks::adopt`](crate::Locks::adopt); `None` if other clones of the lease keep it.
    pub fn detach(self) -> Option<Detached> {
        let mut share = Arc::into_inner(self.share)?;
        share.settled = true;
        let held = &share.held;
        Some(Detached { name: held.name.clone(), ownership: held.ownership.clone(), ttl: held.ttl })
    }

    /// Which ownership of the lock this is: the proof of holding.

    pub fn ownership(&self) -> &Ownership {
        &self.held().ownership
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.share.held
    }
}

impl Share {
    async fn release(&mut self) -> Result<Released, BackendError> {
        self.stop_renewing();
        let held = &self.held;
        let (least, most) = RELEASE_PATIENCE.into_inner();
        let give_up = Moment::now() + held.remaining().clamp(least, most);
        // From here on, somebody else may have it.
        held.end();
        let release = || held.release();
        let owned = retried_until(give_up, release).await?;
        self.settled = true;
        Ok(if owned { Released::Released } else { Released::NotHeld })
    }

    fn stop_renewing(&self) {
        if let Some(renewal) = &self.renewal {
            renewal.abort();
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.stop_renewing();
        if self.settled {
            return;
        }
        let held = self.held.clone();
        held.end();
        let release = async move {
            let give_up = Moment::now() + *RELEASE_PATIENCE.end();
            let release = || held.release();
            if let Err(error) = retried_until(give_up, release).await {
                tracing::warn!(parent: &held.span, %error, "a lock was not released");
            }
        };
        self.held.locks.background.spawn_on(release, &self.runtime);
    }
}

/// What a release did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The lock was ours, and is free now.
    Released,
    /// The lock was not ours any more: its ttl was over, or an earlier try to release it, whose
    /// reply was lost, had freed it.
    NotHeld,
    /// Other clones of the lease keep the lock.
    StillHeld,
}

/// A lock that its lease has left taken, for another process to go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    /// The lock's name.
    pub name: ResourceName,
    /// Which ownership it is: the proof of holding.
    pub ownership: Ownership,
    /// How long it is granted for with each renewal.
    pub ttl: Ttl,
}

/// The lease is lost, or past its deadline: somebody else may hold the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is lost: somebody else may hold the lock")]
pub struct Lost;

/// Why a lease was not renewed, or its token not swapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// Stop: the lease is over.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The lock service did not answer, or refused. The lease may be valid yet: try again, until the
    /// deadline, if the error says that it may help.
    #[error(transparent)]
    LockService(BackendError),
}

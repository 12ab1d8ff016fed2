//! A held lock.

pub(crate) mod held;
mod renewal;

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use fence::{Fence, Holder, ResourceName, Token};
use tokio::{runtime::Handle, task::AbortHandle};
use tracing::{Instrument, Span};

use self::held::{Granted, Held};
use crate::{
    backend::Ownership,
    clock::Moment,
    error::{DetachError, LockServiceError, Lost, RenewError},
    service::LockService,
    terms::Renewal,
    ttl::Ttl,
};

/// How long a release waits for an answer: as long as the lease lasts, within these numbers of the
/// backend's answer time-outs.
const RELEASE_PATIENCE: RangeInclusive<u32> = 1..=4;

/// A held lock: the right to act on a resource until the deadline, and the token that proves it.
///
/// The deadline counts from before the lock was requested, minus the drift of clocks. A lease past
/// its deadline never claims to be held, and never becomes valid again. A check of the lease is no
/// protection, because the holder may be paused right after it. The token, sent with each write,
/// is.
///
/// Unless its [`Terms`](crate::Terms) say otherwise, a lease renews itself at a third of its ttl,
/// by a task that ends with the lease. A lease can be cloned. Its lock is released with the last
/// clone: by [`release`](Self::release), which reports the outcome, or in the background when it is
/// dropped.
///
/// # Lost connections
/// Renewals are repeated until the deadline. If none is answered until then, the lease is lost,
/// though the lock service may keep the lock for a little longer.
#[derive(Clone, Debug)]
#[must_use = "a lease that is dropped is released"]
pub struct Lease {
    share: Arc<Share>,
}

/// What the clones of a lease share. It ends with the last of them.
#[derive(Debug)]
struct Share {
    held: Arc<Held>,
    renewal: Option<AbortHandle>,
    runtime: Handle,
    /// Whether the lock was released, or left held for another process. Then a drop releases
    /// nothing.
    given_up: bool,
    /// The deadline before the lease was released. `None` if it was not.
    deadline: Option<Moment>,
}

impl Lease {
    /// Starts a lease, and the task that renews it.
    pub(crate) fn start(granted: Granted, renewal: Renewal) -> Self {
        let held = Arc::new(Held::new(granted));
        let runtime = Handle::current();
        let renewal = match renewal {
            Renewal::None => None,
            Renewal::Automatic { max_hold } => {
                let renewing = renewal::renew_until_lost(held.clone(), max_hold);
                Some(runtime.spawn(renewing.instrument(held.span.clone())).abort_handle())
            }
        };
        Self { share: Arc::new(Share { held, renewal, runtime, given_up: false, deadline: None }) }
    }

    /// The lock's name.
    pub fn name(&self) -> &ResourceName {
        &self.held().name
    }

    /// The holder: the owner of this one grant.
    pub fn holder(&self) -> &Holder {
        &self.held().ownership.holder
    }

    /// How long the lease may still be relied on: zero once it is lost or past its deadline.
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

    /// The token and holder, as the storage needs them.
    ///
    /// # Errors
    /// [`Lost`] if the lease is lost or past its deadline.
    pub fn fence(&self) -> Result<Fence, Lost> {
        self.held().fence()
    }

    /// Waits until the lease is lost, past its deadline, or released.
    ///
    /// The future does not keep the lease. After the machine was suspended, it may complete late,
    /// by up to a second. [`token`](Self::token) is an error at once.
    ///
    /// # Cancellation safety
    /// The future may be dropped and requested again.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.held().lost()
    }

    /// Sets the full ttl again, counted from now. A lease that renews itself does not need it.
    ///
    /// # Errors
    /// [`RenewError::Lost`] if the lease is lost or past its deadline: it never becomes valid
    /// again. [`RenewError::LockService`] if there was no answer: it may be repeated until the
    /// deadline.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the ttl may have been set. The deadline stays as it was.
    pub async fn renew(&self) -> Result<(), RenewError> {
        self.held().renew(|| self.held().ttl).await
    }

    /// Reissues the token unless it is above `above` already, and returns it. It is for a storage
    /// that rejected the token because the lock service lost its counter, though the lock is still
    /// held.
    ///
    /// Call it only before anything was read with the old token. Afterwards, a rejection means that
    /// another client was let in, and what was read is void. The storage client decides this
    /// itself.
    ///
    /// # Errors
    /// [`RenewError::Lost`] if the lease is lost or past its deadline, [`RenewError::LockService`]
    /// if there was no answer: it may be repeated.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the lock may have a higher token. The next renewal returns it.
    pub async fn reissue(&self, above: Token) -> Result<Token, RenewError> {
        self.held().reissue(above).await
    }

    /// Releases the lock, if this is the last clone of the lease. A request without
    /// an answer is repeated until the deadline, for 1 to 4 [answer
    /// time-outs](crate::backend::Backend::answer_timeout). A lease past its deadline may be
    /// released too: then the outcome says whether the lock was still ours.
    ///
    /// # Errors
    /// [`LockServiceError`] if the lock service did not answer. The release is then repeated in the
    /// background, until the deadline that the lease had, and for 4 more answer time-outs at least.
    /// If it does not answer then either, the lock is free after its ttl.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the lock is released in the background.
    pub async fn release(self) -> Result<Released, LockServiceError> {
        match Arc::into_inner(self.share) {
            Some(mut share) => share.release().await,
            None => Ok(Released::StillHeld),
        }
    }

    /// Leaves the lock held until its ttl ends, for another process to
    /// [adopt](crate::Locks::adopt). The lock was acquired with
    /// [`Terms::detachable`](crate::Terms::detachable), or adopted.
    ///
    /// # Errors
    /// [`DetachError::NotDetachable`] if it was acquired without, [`DetachError::Shared`] if other clones
    /// of the lease keep the lock. This clone has ended then. The last one releases the lock.
    pub fn detach(self) -> Result<Detached, DetachError> {
        if !self.held().detachable {
            return Err(DetachError::NotDetachable { lock: self.name().clone() });
        }
        let name = self.name().clone();
        let Some(mut share) = Arc::into_inner(self.share) else {
            return Err(DetachError::Shared { lock: name });
        };
        // A renewal that ends later must not take the lock for this client's.
        share.stop_renewing();
        share.given_up = true;
        let held = &share.held;
        Ok(Detached {
            name,
            ownership: held.ownership.clone(),
            token: held.service.backend.detach(&held.ownership, held.last_token()),
            ttl: held.ttl,
        })
    }

    /// The ownership of the lock: the proof of holding it.
    pub fn ownership(&self) -> &Ownership {
        &self.held().ownership
    }

    pub(crate) fn span(&self) -> &Span {
        &self.held().span
    }

    pub(crate) fn service(&self) -> &LockService {
        &self.held().service
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.share.held
    }
}

impl Share {
    async fn release(&mut self) -> Result<Released, LockServiceError> {
        self.stop_renewing();
        let held = &self.held;
        let (least, most) = RELEASE_PATIENCE.into_inner();
        let (least, most) = (held.service.patience(least), held.service.patience(most));
        let deadline = Moment::now() + held.remaining().clamp(least, most);
        self.deadline = Some(Moment::now() + held.remaining());
        // From here on, another client may hold the lock.
        held.end();
        let owned = held.release(deadline).await?;
        self.given_up = true;
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
        if self.given_up {
            return;
        }
        let held = self.held.clone();
        let patience = Moment::now() + held.service.patience(*RELEASE_PATIENCE.end());
        // A failover, or a Cluster that moves the lock's slot, may take longer than the patience.
        let until = self.deadline.unwrap_or(Moment::now() + held.remaining()).max(patience);
        held.end();
        let release = async move {
            if let Err(error) = held.release(until).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(parent: &held.span, error, "a lock was not released");
            }
        };
        self.held.service.background.spawn_on(release, &self.runtime);
    }
}

/// The outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The lock was held by this lease, and is free now.
    Released,
    /// The lock was no longer held by this lease. It had expired, or an earlier request, whose
    /// reply was lost, had released it.
    NotHeld,
    /// Other clones of the lease keep the lock.
    StillHeld,
}

/// A lock that its lease has left held, for another process to [adopt](crate::Locks::adopt).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    /// The lock's name.
    pub name: ResourceName,
    /// The ownership of the lock: the proof of holding it.
    pub ownership: Ownership,
    /// The highest token that the lease had. With Redlock, it may be higher than the token that was
    /// handed out.
    pub token: Token,
    /// The ttl that each renewal sets.
    pub ttl: Ttl,
}

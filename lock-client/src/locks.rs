//! Acquiring locks, in all its forms.

use std::{sync::Arc, time::Duration};

use fence::{Holder, ResourceName};
use tracing::{Instrument, Span};

use crate::{
    Backend, Lease, Lost, Order, RenewError, Terms,
    acquisition::Acquisition,
    backend::{BackendError, Contention, Status, Wakeups},
    background::Background,
    clock::Moment,
    lease::{Detached, Granted},
    local_queue::LocalQueues,
    retry::retried_until,
    terms::Wait,
};

/// How long to go on asking for something that is not part of an acquire.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);

/// Locks of one lock service.
///
/// # Cancellation safety
/// An acquire that is dropped leaves nothing behind: what it may have taken is released in the
/// background, and it leaves the queue. That takes a Tokio runtime that goes on, and a lock service
/// that can be reached; else the ttl frees the lock.
///
/// # Lost connections
/// A try that is not answered is repeated, as the same holder, so that a grant whose reply was lost is
/// not lost.
#[derive(Clone, Debug)]
pub struct Locks {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) queues: LocalQueues,
    /// Tasks that undo what was dropped.
    pub(crate) background: Background,
}

impl Locks {
    /// Makes locks of a lock service.
    pub fn new(backend: impl Backend) -> Self {
        Self::with_background(backend, Background::default())
    }

    /// Makes locks of a lock service that has tasks of its own in this background.
    pub(crate) fn with_background(backend: impl Backend, background: Background) -> Self {
        Self { backend: Arc::new(backend), queues: LocalQueues::default(), background }
    }

    /// Takes the lock on these terms; on those of a [`Ttl`](crate::Ttl) alone: as soon as it is free.
    ///
    /// A lock service that doesn't answer is asked again: for 10 seconds if the wait is unlimited, for
    /// 2 if there is none; else until the wait is over and, if it had answered before, half a second
    /// more, or for 2 seconds at least.
    ///
    /// # Errors
    /// [`AcquireError::Contended`] if somebody else still has it after the wait,
    /// [`AcquireError::Unavailable`] if the lock service did not answer, [`AcquireError::Rejected`] if it
    /// refused.
    ///
    /// # Cancellation safety
    /// If this future is dropped, nothing is left behind.
    pub async fn acquire(
        &self,
        name: &ResourceName,
        terms: impl Into<Terms>,
    ) -> Result<Lease, AcquireError> {
        Acquisition::new(self, name, terms.into()).run().await
    }

    /// Takes several locks, all or none. They are taken in the order of their names, so that nobody
    /// waits for somebody who waits for them. The wait is that for all together. The leases come in
    /// the order of the names as given; a name that is given twice has two clones of one lease.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`AcquireError::Lost`] if one was lost while the others were
    /// waited for.
    ///
    /// # Cancellation safety
    /// If this future is dropped, nothing is left behind.
    pub async fn acquire_all(
        &self,
        names: &[ResourceName],
        terms: impl Into<Terms>,
    ) -> Result<Vec<Lease>, AcquireError> {
        let mut terms = terms.into();
        let until = match terms.wait {
            Wait::AtMost(wait) => Some(Moment::now() + wait),
            Wait::No | Wait::Forever => None,
        };
        let mut sorted: Vec<_> = names.iter().collect();
        sorted.sort();
        sorted.dedup();
        let mut leases = Vec::with_capacity(sorted.len());
        for &name in &sorted {
            if let Some(until) = until {
                terms = terms.wait(until.remaining());
            }
            match self.acquire(name, terms).await {
                Ok(lease) => leases.push(lease),
                Err(error) => {
                    for lease in leases {
                        // If there is no answer, it goes on in the background.
                        let _ = lease.release().await;
                    }
                    return Err(error);
                }
            }
        }
        // The wait for the later ones may have been too long for the earlier ones.
        for lease in &leases {
            lease.token()?;
        }
        let of = |name| sorted.binary_search(&name).expect("every name is among the sorted ones");
        Ok(names.iter().map(|name| leases[of(name)].clone()).collect())
    }

    /// Does something under a lock: takes it, runs the body with its lease, and releases it.
    ///
    /// The body is cancelled when the lease is lost. Within the body, [`Lease::acquire`] re-enters.
    /// The lock is released in any case; if the body leaves a clone of the lease elsewhere, when that
    /// is dropped. What the release comes to hides nothing of what the body said.
    ///
    /// # Errors
    /// [`WithError::Acquire`] if the body was not run, [`WithError::Lost`] if it was cancelled, and
    /// [`WithError::Body`] with the body's own error.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the body is, and the lock is released in the background.
    pub async fn with<T, E, F>(
        &self,
        name: &ResourceName,
        terms: impl Into<Terms>,
        body: impl FnOnce(Lease) -> F,
    ) -> Result<T, WithError<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let lease = self.acquire(name, terms).await?;
        // The select ends what it did not choose: the body, and its clones of the lease.
        let outcome = tokio::select! {
            biased;
            outcome = body(lease.clone()).instrument(lease.held().span.clone()) => Some(outcome),
            () = lease.lost() => None,
        };
        if let Err(error) = lease.release().await {
            tracing::warn!(%name, %error, "a lock was not released");
        }
        match outcome {
            Some(outcome) => outcome.map_err(WithError::Body),
            None => Err(WithError::Lost(Lost)),
        }
    }

    /// Goes on with a lock that another lease has left taken: renews it, and keeps it on these terms.
    ///
    /// # Errors
    /// [`RenewError::Lost`] if the lock no longer belongs to that ownership,
    /// [`RenewError::LockService`] if the lock service did not answer for 2 seconds.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the lock may have been renewed.
    pub async fn adopt(
        &self,
        detached: Detached,
        terms: impl Into<Terms>,
    ) -> Result<Lease, RenewError> {
        let terms = terms.into();
        let ttl = terms.first_ttl();
        let Detached { name, ownership, .. } = detached;
        let mut asked = Moment::now();
        let renewed = retried_until(asked + STATUS_PATIENCE, || {
            asked = Moment::now();
            self.backend.renew(&name, &ownership, ttl)
        });
        let token = renewed.await.map_err(RenewError::LockService)?.ok_or(Lost)?;
        let granted = Granted {
            locks: self.clone(),
            name,
            ownership,
            ttl,
            token,
            asked,
            caller: Span::current(),
        };
        Ok(Lease::begin(granted, terms.renewal))
    }

    /// Tells what the lock is at this moment.
    ///
    /// # Errors
    /// [`BackendError`] if the lock service gave no answer for 2 seconds.
    pub async fn status(&self, name: &ResourceName) -> Result<Status, BackendError> {
        retried_until(Moment::now() + STATUS_PATIENCE, || self.backend.status(name)).await
    }

    /// Subscribes to the freeing of a lock, without waiting for its turn: from when this is answered,
    /// nothing is missed that is told to all. A lock that goes to who stands first in its queue, or
    /// whose ttl is over, is freed without it.
    ///
    /// # Errors
    /// [`BackendError`] if the lock service gave no answer for 2 seconds, or refused.
    pub async fn wakeups(&self, name: &ResourceName) -> Result<Wakeups, BackendError> {
        let nobody = Holder::random();
        let subscribe = || self.backend.subscribe(name, &nobody, Order::Unordered);
        retried_until(Moment::now() + STATUS_PATIENCE, subscribe).await
    }

    /// Waits until what was dropped is undone: acquires that were dropped have left nothing behind,
    /// and leases that were dropped are released. A lock service that doesn't answer is given up
    /// after 2 seconds, so it doesn't take much longer. For a process that is about to end, with
    /// which the background ends too.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the background goes on.
    pub async fn settled(&self) {
        self.background.settled().await;
    }
}

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody else has it. Try again later.
    #[error("somebody else holds the lock")]
    Contended {
        /// For how long yet, unless renewed or released; `None` if it has no end.
        remaining: Option<Duration>,
    },
    /// There was no answer. The lock may have been taken all the same; if so, it is free again when
    /// its ttl is over.
    #[error("no answer from the lock service: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The lock service refused, and trying again would not help.
    #[error("the lock service refused: {0}")]
    Rejected(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A lease that this depends on was lost.
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl From<Contention> for AcquireError {
    fn from(contention: Contention) -> Self {
        Self::Contended { remaining: contention.remaining }
    }
}

impl From<BackendError> for AcquireError {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Unavailable(reason) => Self::Unavailable(reason),
            BackendError::Rejected(reason) => Self::Rejected(reason),
        }
    }
}

/// Why something was not done under a lock.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WithError<E> {
    /// The lock was not acquired, and nothing was done.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The lease was lost, and the body was cancelled where it was.
    #[error(transparent)]
    Lost(Lost),
    /// The body's own error.
    #[error(transparent)]
    Body(E),
}

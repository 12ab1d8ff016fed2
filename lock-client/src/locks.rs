//! The locks of one lock service.

use std::pin::pin;

use fence::{Holder, ResourceName, Token};
use futures_util::future::{Either, select};
use tracing::{Instrument, Span};

use crate::{
    acquisition::Acquisition,
    backend::{Backend, BackendError, HeldNames, Status, Wakeups},
    clock::Moment,
    error::{AcquireError, LockServiceError, Lost, RenewError, WithError},
    lease::{Detached, Lease, held::Granted},
    retry::retry_until,
    service::{LockService, Unanswered},
    terms::{Order, Terms, Wait},
};

/// How long a request without an answer is repeated that is not part of an acquire, in answer
/// time-outs.
const PATIENCE: u32 = 4;

/// The locks of one lock service.
///
/// # Cancellation safety
/// An acquire that is dropped leaves nothing behind: it leaves the queue, and what it may have
/// acquired is released in the background. This needs a Tokio runtime that still runs, and a lock
/// service that can be reached. Otherwise the lock is free after its ttl.
///
/// # Lost connections
/// A request that is not answered is repeated as the same holder, so that a grant whose reply was
/// lost is not lost.
#[derive(Clone, Debug)]
pub struct Locks {
    service: LockService,
}

impl Locks {
    /// Makes the locks of a lock service.
    pub fn new(backend: impl Backend) -> Self {
        Self { service: LockService::new(backend) }
    }

    /// Acquires the lock on these terms. A [`Ttl`](crate::Ttl) alone means: wait as long as it
    /// takes, and renew the lease.
    ///
    /// A lock service that does not answer is asked again. If the wait is unlimited, this goes on
    /// for 20 [answer time-outs](Backend::answer_timeout), and without a wait for 4. An answer
    /// time-out is half a second by default. If the wait is limited, it goes on until the wait ends,
    /// but for at least 4 answer time-outs, or 1 once the service has answered.
    ///
    /// # Errors
    /// [`AcquireError::Contended`] if another client still holds the lock after the wait,
    /// [`AcquireError::Unavailable`] if the lock service did not answer, [`AcquireError::Rejected`]
    /// if it rejected.
    ///
    /// # Cancellation safety
    /// If this future is dropped, nothing is left behind.
    pub async fn acquire(
        &self,
        name: &ResourceName,
        terms: impl Into<Terms>,
    ) -> Result<Lease, AcquireError> {
        Acquisition::new(&self.service, name, terms.into()).run().await
    }

    /// Acquires several locks, all or none. They are acquired in the order of their names, so that
    /// no two clients wait for each other. The wait is for all together. The leases are returned in
    /// the order of `names`. A name that is given twice gets two clones of one lease.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`AcquireError::Lost`] if one lease was lost while the
    /// other locks were acquired.
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
                        // Without an answer, the release is repeated in the background.
                        let _ = lease.release().await;
                    }
                    return Err(error);
                }
            }
        }
        // An early lease may have been lost during the wait for a late one.
        for lease in &leases {
            lease.token()?;
        }
        let position = |name| sorted.binary_search(&name).expect("every name was sorted in");
        Ok(names.iter().map(|name| leases[position(name)].clone()).collect())
    }

    /// Runs a body under a lock: acquires the lock, passes the lease to the body, and releases it.
    ///
    /// The body is cancelled when the lease is lost. Within the body, [`Lease::acquire`] re-enters.
    /// The lock is released in any case. If the body leaves a clone of the lease elsewhere, the
    /// lock is released when that clone is dropped. A failed release never hides the body's result.
    ///
    /// # Errors
    /// [`WithError::Acquire`] if the body was not run, [`WithError::Lost`] if it was cancelled, and
    /// [`WithError::Body`] with the body's own error.
    ///
    /// # Cancellation safety
    /// If this future is dropped, so is the body, and the lock is released in the background.
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
        // The body is dropped here with its clones of the lease, whether it finished or not.
        let outcome = {
            let body = pin!(body(lease.clone()).instrument(lease.span().clone()));
            match select(body, pin!(lease.lost())).await {
                Either::Left((outcome, _)) => Some(outcome),
                Either::Right(((), _)) => None,
            }
        };
        if let Err(error) = lease.release().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a lock was not released");
        }
        match outcome {
            Some(outcome) => outcome.map_err(WithError::Body),
            None => Err(WithError::Lost(Lost { lock: name.clone() })),
        }
    }

    /// Takes over a lock that another lease left held: renews it, and keeps it on these terms.
    ///
    /// # Errors
    /// [`RenewError::Lost`] if the lock no longer belongs to that ownership,
    /// [`RenewError::LockService`] if the lock service did not answer for 4 answer time-outs, or does
    /// not grant the ttl. In the latter case, the lock is left as it is.
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
        let Detached { name, ownership, token, ttl: earlier_ttl } = detached;
        let until = Moment::now() + self.service.patience(PATIENCE);
        // The service has granted the earlier ttl.
        if ttl != earlier_ttl {
            let checked = self.service.retry_until(until, || self.service.backend.check_ttl(ttl));
            if let Err(source) = checked.await {
                return Err(RenewError::LockService { lock: name, source });
            }
        }
        self.service.backend.adopt(&ownership, token);
        let mut asked = Moment::now();
        let renewed = self.service.retry_until(until, || {
            asked = Moment::now();
            self.service.backend.renew(&name, &ownership, ttl)
        });
        let token = match renewed.await {
            Ok(Some(token)) => token,
            Ok(None) => return Err(Lost { lock: name }.into()),
            Err(source) => return Err(RenewError::LockService { lock: name, source }),
        };
        let granted = Granted {
            service: self.service.clone(),
            name,
            ownership,
            ttl,
            token,
            asked,
            detachable: true,
            caller: Span::current(),
        };
        Ok(Lease::start(granted, terms.renewal))
    }

    /// Returns the lock's present state.
    ///
    /// # Errors
    /// [`LockServiceError`] if the lock service did not answer for 4 answer time-outs, or rejected.
    pub async fn status(&self, name: &ResourceName) -> Result<Status, LockServiceError> {
        self.read(name, || self.service.backend.status(name)).await
    }

    /// Releases a lock that its owner left held, if this is still the owner's token, and notifies the
    /// waiters. Returns whether it was. An owner that lives loses its lease, and its token protects
    /// the resource.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    ///
    /// # Cancellation safety
    /// If this future is dropped, the lock may have been released.
    pub async fn break_lock(
        &self,
        name: &ResourceName,
        token: Token,
    ) -> Result<bool, LockServiceError> {
        let held = self.status(name).await?.held;
        let Some(held) = held.filter(|held| held.token == token) else { return Ok(false) };
        let holder = held.ownership.holder;
        // No other grant has this holder. If the release finds the lock free, an earlier try of it
        // was carried out, or the owner itself has released the lock.
        self.read(name, || self.service.backend.release(name, &holder, Some(token))).await?;
        Ok(true)
    }

    /// Subscribes to the releases of a lock, without a place among its waiters. When this returns,
    /// every later release is notified, unless the lock goes to the first waiter of its fair queue.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    pub async fn wakeups(&self, name: &ResourceName) -> Result<Wakeups, LockServiceError> {
        // A subscription needs a holder, but this one never waits in the queue.
        let holder = Holder::random();
        let subscribe = || self.service.backend.subscribe(name, &holder, Order::Unordered);
        self.read(name, subscribe).await
    }

    async fn read<T, F>(
        &self,
        name: &ResourceName,
        request: impl FnMut() -> F,
    ) -> Result<T, LockServiceError>
    where
        F: Future<Output = Result<T, BackendError>>,
    {
        // Nobody waits for this longer than for its answer, so it is not recorded as unanswered.
        let deadline = Moment::now() + self.service.patience(PATIENCE);
        let answer = retry_until(deadline, || self.service.backend.address(), request).await;
        answer.map_err(|source| LockServiceError { lock: name.clone(), source })
    }

    /// Reads the names of the locks that are held and whose names have this prefix. Ask for the
    /// [`status`](Self::status) of each: a lock may have been released meanwhile. Redlock has no list;
    /// each of its nodes has one, as a single Redis.
    pub fn held_names(&self, prefix: &str) -> HeldNames {
        self.service.backend.held_names(prefix)
    }

    /// Returns why the last request that acquires, renews or releases one of these locks was not
    /// answered, while it is repeated. `None` if it was answered. A program that waits for a lock can
    /// show it to its user.
    pub fn unanswered(&self) -> Option<Unanswered> {
        self.service.unanswered()
    }

    /// Returns the address of the lock service, without a password.
    pub fn address(&self) -> String {
        self.service.backend.address()
    }

    /// Waits until everything that was dropped is undone: acquires have left nothing behind, and
    /// leases are released. A lock service that does not answer is asked for 4 answer time-outs,
    /// and to release a lease until the lease's deadline. A try that a database may still carry out is
    /// waited for, up to 5 minutes. What begins during the wait may prolong it. So set a time-out. Call it
    /// before the process ends, because the background ends with it.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the background continues.
    pub async fn wait_for_background(&self) {
        self.service.background.close();
        self.service.background.wait().await;
        // A release of the background may have started one of the backend's own.
        self.service.backend.wait_for_releases().await;
    }
}

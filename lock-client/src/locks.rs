//! Acquiring locks, in all its forms.

use std::{sync::Arc, time::Duration};

use fence::{Holder, ResourceName};
use tokio::time::{sleep, timeout};

use crate::{
    Backend, Lease, Ttl,
    backend::{Attempt, BackendError, Ownership, Status},
    clock::Moment,
};

/// How long to go on asking a lock service that doesn't answer, where the caller set no limit.
const UNAVAILABLE_PATIENCE: Duration = Duration::from_secs(10);
/// The same for a single try, which is repeated only because its reply may have been lost.
const TRY_PATIENCE: Duration = Duration::from_secs(2);
/// The same at the end of a limited wait: each try has the time for one answer.
const LAST_TRY_PATIENCE: Duration = Duration::from_millis(500);
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Locks of one lock service.
#[derive(Clone, Debug)]
pub struct Locks {
    backend: Arc<dyn Backend>,
}

impl Locks {
    /// Makes locks of a lock service.
    pub fn new(backend: impl Backend) -> Self {
        Self { backend: Arc::new(backend) }
    }

    /// Takes the lock if it is free.
    ///
    /// A lock service that doesn't answer is asked again for 2 seconds, as the same holder, so that
    /// a grant whose reply was lost is not lost.
    ///
    /// # Errors
    /// [`AcquireError::Contended`] if somebody else has it.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the lock may be taken until its ttl is over.
    pub async fn try_acquire(&self, name: &ResourceName, ttl: Ttl) -> Result<Lease, AcquireError> {
        let patience = Patience { contended: Some(Moment::now()), unavailable: TRY_PATIENCE };
        self.acquire_with(name, ttl, patience).await
    }

    /// Takes the lock as soon as it is free, but gives up after `wait`; a second later at most if the
    /// lock service does not answer.
    ///
    /// # Errors
    /// [`AcquireError::Contended`] if somebody else still has it after `wait`,
    /// [`AcquireError::Unavailable`] if the lock service did not answer until then.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the lock may be taken until its ttl is over.
    pub async fn acquire_within(
        &self,
        name: &ResourceName,
        ttl: Ttl,
        wait: Duration,
    ) -> Result<Lease, AcquireError> {
        let contended = Some(Moment::now() + wait);
        let patience = Patience { contended, unavailable: LAST_TRY_PATIENCE };
        self.acquire_with(name, ttl, patience).await
    }

    /// Takes the lock as soon as it is free.
    ///
    /// # Errors
    /// [`AcquireError::Unavailable`] if the lock service did not answer for 10 seconds.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the lock may be taken until its ttl is over.
    pub async fn acquire(&self, name: &ResourceName, ttl: Ttl) -> Result<Lease, AcquireError> {
        let patience = Patience { contended: None, unavailable: UNAVAILABLE_PATIENCE };
        self.acquire_with(name, ttl, patience).await
    }

    /// Tells what the lock is at this moment.
    ///
    /// # Errors
    /// [`BackendError`] if the lock service gave no answer for 2 seconds.
    pub async fn status(&self, name: &ResourceName) -> Result<Status, BackendError> {
        retried_until(Moment::now() + TRY_PATIENCE, || self.backend.status(name)).await
    }

    async fn acquire_with(
        &self,
        name: &ResourceName,
        ttl: Ttl,
        patience: Patience,
    ) -> Result<Lease, AcquireError> {
        let holder = Holder::random();
        let mut unanswered = 0;
        let result = self.acquire_as(&holder, name, ttl, patience, &mut unanswered).await;
        if result.is_err() && unanswered > 0 {
            self.release_unheard(name, &holder).await;
        }
        result
    }

    /// Acquires as this holder, and counts the tries that had no answer.
    async fn acquire_as(
        &self,
        holder: &Holder,
        name: &ResourceName,
        ttl: Ttl,
        patience: Patience,
        unanswered: &mut u32,
    ) -> Result<Lease, AcquireError> {
        loop {
            let mut asked = Moment::now();
            let mut tries = 0;
            let answer_by = asked + patience.unavailable;
            let give_up = patience.contended.map_or(answer_by, |end| end.max(answer_by));
            let attempt = retried_until(give_up, || {
                asked = Moment::now();
                tries += 1;
                self.backend.try_acquire(name, holder, ttl)
            });
            let attempt = attempt.await;
            *unanswered += tries - 1;
            let remaining = match attempt {
                Ok(Attempt::Granted { token, grant }) => {
                    let ownership = Ownership { holder: holder.clone(), grant };
                    let (backend, name) = (self.backend.clone(), name.clone());
                    return Ok(Lease::new(backend, name, ownership, ttl, token, asked));
                }
                Ok(Attempt::Busy { remaining }) => remaining,
                Err(BackendError::Rejected(reason)) => return Err(AcquireError::Rejected(reason)),
                Err(BackendError::Unavailable(reason)) => {
                    *unanswered += 1;
                    return Err(AcquireError::Unavailable(reason));
                }
            };
            let left = patience.contended.map_or(Duration::MAX, Moment::remaining);
            if left.is_zero() {
                return Err(AcquireError::Contended { remaining });
            }
            // If the time is up first, one last try follows.
            let _ = timeout(left, self.backend.wait_until_free(name, remaining)).await;
        }
    }

    /// Frees what a try without an answer may have taken. The request may reach the lock service
    /// after all, behind the tries; if not, the ttl frees the lock.
    async fn release_unheard(&self, name: &ResourceName, holder: &Holder) {
        let _ = timeout(LAST_TRY_PATIENCE, self.backend.release(name, holder)).await;
    }
}

/// How long an acquire goes on.
struct Patience {
    /// Until when somebody else may have the lock; `None` without a limit.
    contended: Option<Moment>,
    /// For how long the lock service may leave a request unanswered.
    unavailable: Duration,
}

/// Asks until there is an answer, or until the moment to give up. Each request is cut off then, and
/// there is always one.
pub(crate) async fn retried_until<T, F>(
    give_up: Moment,
    mut ask: impl FnMut() -> F,
) -> Result<T, BackendError>
where
    F: Future<Output = Result<T, BackendError>>,
{
    loop {
        let left = give_up.remaining();
        let no_answer = || Err(BackendError::Unavailable("no answer in time".into()));
        let answer = timeout(left, ask()).await.unwrap_or_else(|_| no_answer());
        let pause = RETRY_PAUSE.mul_f64(rand::random_range(0.5..1.5));
        match answer {
            Err(BackendError::Unavailable(_)) if give_up.remaining() > pause => sleep(pause).await,
            answer => return answer,
        }
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
}

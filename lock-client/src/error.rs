//! Why an operation on a lock failed. Each error names the lock.
//!
//! An error's text does not repeat its source. To show the cause, print the whole chain of sources.

use std::{error::Error, fmt, time::Duration};

use fence::ResourceName;

use crate::backend::{BackendError, Contention};

/// The lease is lost or past its deadline. Another client may hold the lock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease of lock `{lock}` is lost: another client may hold the lock")]
pub struct Lost {
    /// The lock's name.
    pub lock: ResourceName,
}

/// Why a lock was not acquired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Another client holds the lock. Try again later.
    #[error("lock `{lock}` is held by another client{}", for_time(*remaining))]
    Contended {
        /// The lock's name.
        lock: ResourceName,
        /// The time until the lock expires, unless it is renewed or released; `None` if it never
        /// does.
        remaining: Option<Duration>,
    },
    /// There was no answer, or the lock service can't serve requests now, such as a replica before a
    /// failover. If the lock was acquired, it is released in the background, or expires with its ttl.
    #[error("lock `{lock}`: the lock service is unavailable")]
    Unavailable {
        /// The lock's name.
        lock: ResourceName,
        /// The cause, which names the server.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The lock service rejected the request. Trying again would not help.
    #[error("lock `{lock}`: the lock service rejected the request")]
    Rejected {
        /// The lock's name.
        lock: ResourceName,
        /// The cause, which names the server.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The request itself is wrong, such as a ttl that the lock service never grants, or a fair
    /// order that it does not keep.
    #[error("lock `{lock}`: the request is invalid")]
    Invalid {
        /// The lock's name.
        lock: ResourceName,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A lease that this depends on was lost.
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl AcquireError {
    pub(crate) fn contended(lock: &ResourceName, contention: Contention) -> Self {
        Self::Contended { lock: lock.clone(), remaining: contention.remaining }
    }

    pub(crate) fn from_backend(lock: &ResourceName, error: BackendError) -> Self {
        let lock = lock.clone();
        match error {
            BackendError::Unavailable(source) => Self::Unavailable { lock, source },
            BackendError::Rejected(source) => Self::Rejected { lock, source },
            BackendError::Invalid(source) => Self::Invalid { lock, source },
        }
    }
}

/// Why a lease was not renewed, or its token not reissued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// Stop: the lease has ended.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The lock service did not answer, or rejected the request. The lease may still be valid. After
    /// [`BackendError::Unavailable`], try again until the deadline.
    #[error("lock `{lock}`: the request failed")]
    LockService {
        /// The lock's name.
        lock: ResourceName,
        /// What the lock service reported.
        source: BackendError,
    },
}

/// Why a lock was not left held for another process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DetachError {
    /// The lock was acquired without [`Terms::detachable`](crate::Terms::detachable).
    #[error("lock `{lock}` can't be left to another process: acquire it with `Terms::detachable`")]
    NotDetachable {
        /// The lock's name.
        lock: ResourceName,
    },
    /// Other clones of the lease keep the lock.
    #[error("lock `{lock}` is kept by another clone of its lease")]
    Shared {
        /// The lock's name.
        lock: ResourceName,
    },
}

/// Why a lock was not released, or its state not read.
#[derive(Debug, thiserror::Error)]
#[error("lock `{lock}`: the request failed")]
pub struct LockServiceError {
    /// The lock's name.
    pub lock: ResourceName,
    /// What the lock service reported.
    pub source: BackendError,
}

/// Why work under a lock was not completed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WithError<E> {
    /// The lock was not acquired. The body was not run.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The lease was lost, and the body was cancelled.
    #[error(transparent)]
    Lost(Lost),
    /// The body's own error.
    #[error(transparent)]
    Body(E),
}

fn for_time(remaining: Option<Duration>) -> impl fmt::Display {
    fmt::from_fn(move |f| match remaining {
        None => Ok(()),
        Some(left) if left < Duration::from_secs(1) => {
            write!(f, " for {} ms more", left.as_millis())
        }
        Some(left) => write!(f, " for {:.0} s more", left.as_secs_f64().ceil()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_lock_and_print_each_cause_once() {
        let lock: ResourceName = "deploy".parse().unwrap();
        let contended = |remaining| {
            AcquireError::contended(&lock, Contention { remaining, ahead: None, nap: None })
        };
        for (remaining, text) in [
            (None, "lock `deploy` is held by another client"),
            (
                Some(Duration::from_millis(24_500)),
                "lock `deploy` is held by another client for 25 s more",
            ),
            (
                Some(Duration::from_millis(80)),
                "lock `deploy` is held by another client for 80 ms more",
            ),
        ] {
            assert_eq!(contended(remaining).to_string(), text);
        }
        let silent = BackendError::Unavailable("10.0.0.7:6379: no answer in time".into());
        let error = AcquireError::from_backend(&lock, silent);
        assert_eq!(error.to_string(), "lock `deploy`: the lock service is unavailable");
        let source = error.source().expect("it has a cause");
        assert_eq!(source.to_string(), "10.0.0.7:6379: no answer in time");
    }
}

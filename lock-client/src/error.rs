//! Why an operation on a lock failed. Each error names the lock.
//!
//! An error's text does not repeat its source. To show the cause, print the whole chain of sources.

use std::{error::Error, fmt, time::Duration};

use fence::ResourceName;

use crate::backend::{BackendError, Contention};

/// The lease is lost or past its deadline. Another client may hold the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The lock's name.
    pub lock: ResourceName,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lease of lock `{}` is lost: another client may hold the lock", self.lock)
    }
}

impl Error for Lost {}

/// Why a lock was not acquired.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcquireError {
    /// Another client holds the lock. Try again later.
    Contended {
        /// The lock's name.
        lock: ResourceName,
        /// The time until the lock expires, unless it is renewed or released; `None` if it never
        /// does.
        remaining: Option<Duration>,
    },
    /// There was no answer, or the lock service can't serve requests now, such as a replica before a
    /// failover. If the lock was acquired, it is released in the background, or expires with its ttl.
    Unavailable {
        /// The lock's name.
        lock: ResourceName,
        /// The cause, which names the server.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The lock service rejected the request. Trying again would not help.
    Rejected {
        /// The lock's name.
        lock: ResourceName,
        /// The cause, which names the server.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The request itself is wrong, such as a ttl that the lock service never grants, or a fair
    /// order that it does not keep.
    Invalid {
        /// The lock's name.
        lock: ResourceName,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A lease that this depends on was lost.
    Lost(Lost),
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contended { lock, remaining } => {
                write!(f, "lock `{lock}` is held by another client{}", for_time(*remaining))
            }
            Self::Unavailable { lock, .. } => {
                write!(f, "lock `{lock}`: the lock service is unavailable")
            }
            Self::Rejected { lock, .. } => {
                write!(f, "lock `{lock}`: the lock service rejected the request")
            }
            Self::Invalid { lock, .. } => write!(f, "lock `{lock}`: the request is invalid"),
            Self::Lost(lost) => lost.fmt(f),
        }
    }
}

impl Error for AcquireError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Contended { .. } | Self::Lost(_) => None,
            Self::Unavailable { source, .. }
            | Self::Rejected { source, .. }
            | Self::Invalid { source, .. } => Some(source.as_ref()),
        }
    }
}

impl From<Lost> for AcquireError {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
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
#[derive(Debug)]
#[non_exhaustive]
pub enum RenewError {
    /// Stop: the lease has ended.
    Lost(Lost),
    /// The lock service did not answer, or rejected the request. The lease may still be valid. After
    /// [`BackendError::Unavailable`], try again until the deadline.
    LockService {
        /// The lock's name.
        lock: ResourceName,
        /// What the lock service reported.
        source: BackendError,
    },
}

impl fmt::Display for RenewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(lost) => lost.fmt(f),
            Self::LockService { lock, .. } => write!(f, "lock `{lock}`: the request failed"),
        }
    }
}

impl Error for RenewError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Lost(_) => None,
            Self::LockService { source, .. } => Some(source),
        }
    }
}

impl From<Lost> for RenewError {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

/// Why a lock was not left held for another process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DetachError {
    /// The lock was acquired without [`Terms::detachable`](crate::Terms::detachable).
    NotDetachable {
        /// The lock's name.
        lock: ResourceName,
    },
    /// Other clones of the lease keep the lock.
    Shared {
        /// The lock's name.
        lock: ResourceName,
    },
}

impl fmt::Display for DetachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDetachable { lock } => write!(
                f,
                "lock `{lock}` can't be left to another process: acquire it with \
                 `Terms::detachable`"
            ),
            Self::Shared { lock } => {
                write!(f, "lock `{lock}` is kept by another clone of its lease")
            }
        }
    }
}

impl Error for DetachError {}

/// Why a lock was not released, or its state not read.
#[derive(Debug)]
pub struct LockServiceError {
    /// The lock's name.
    pub lock: ResourceName,
    /// What the lock service reported.
    pub source: BackendError,
}

impl fmt::Display for LockServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock `{}`: the request failed", self.lock)
    }
}

impl Error for LockServiceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// Why work under a lock was not completed.
#[derive(Debug)]
#[non_exhaustive]
pub enum WithError<E> {
    /// The lock was not acquired. The body was not run.
    Acquire(AcquireError),
    /// The lease was lost, and the body was cancelled.
    Lost(Lost),
    /// The body's own error.
    Body(E),
}

impl<E: fmt::Display> fmt::Display for WithError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire(error) => error.fmt(f),
            Self::Lost(lost) => lost.fmt(f),
            Self::Body(error) => error.fmt(f),
        }
    }
}

impl<E: Error + 'static> Error for WithError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Acquire(error) => error.source(),
            Self::Lost(lost) => lost.source(),
            Self::Body(error) => error.source(),
        }
    }
}

impl<E> From<AcquireError> for WithError<E> {
    fn from(error: AcquireError) -> Self {
        Self::Acquire(error)
    }
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

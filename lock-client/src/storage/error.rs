//! Why the storage did not decide, or a resource was not used.

use std::error::Error;

use fence::{Rejection, ResourceName};

use super::server_url::ServerUrl;
use crate::error::{LockServiceError, Lost, RenewError};

/// Why the storage did not decide.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// Nothing has happened. Try again.
    #[error("resource `{}`: the storage is unavailable, and nothing has happened", .0.resource)]
    Unavailable(#[source] StorageRequestError),
    /// The request may have been carried out, and a write may still be. Before anything else is
    /// sent, take a higher token and make a fenced read with it. The read shows whether the write
    /// was carried out. If it was not, the read makes the storage reject it.
    #[error("resource `{}`: the storage did not answer, and may have carried out the request", .0.resource)]
    Unknown(#[source] StorageRequestError),
    /// The request is wrong or not allowed, or the storage's certificate is not trusted. Sending it
    /// again would not help.
    #[error("resource `{}`: the storage rejected the request", .0.resource)]
    Rejected(#[source] StorageRequestError),
}

/// What went wrong with a request to the storage. Its text names the server.
#[derive(Debug, thiserror::Error)]
#[error("{server}")]
pub struct StorageRequestError {
    pub(super) resource: ResourceName,
    server: String,
    source: Box<dyn Error + Send + Sync>,
}

impl StorageRequestError {
    pub(super) fn new(
        server: &ServerUrl,
        resource: &ResourceName,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { resource: resource.clone(), server: server.to_string(), source: source.into() }
    }

    /// The resource that the request was for.
    pub fn resource(&self) -> &ResourceName {
        &self.resource
    }

    /// The host and port of the storage server.
    pub fn server(&self) -> &str {
        &self.server
    }
}

/// Why a resource was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FencedError {
    /// The lease has ended. This call has changed nothing, what was read is void, and the work must
    /// start again with an acquire. If the outcome of an earlier write was
    /// [`Unknown`](Self::Unknown), it remains so.
    #[error("{}", lost_text(lock, rejection.as_ref()))]
    Lost {
        /// The lock's name.
        lock: ResourceName,
        /// The storage's rejection; `None` if it was not asked.
        rejection: Option<Rejection>,
    },
    /// A write may have been carried out, or may still be. Read before anything else: until then,
    /// writes are not sent, and end with this error too. If the write was not carried out, compute
    /// the value to write again from what that read returned, because another client may have
    /// written meanwhile.
    #[error("resource `{}`: the outcome of the last write is unknown until the next read", .0.resource)]
    Unknown(#[source] StorageRequestError),
    /// Nothing has happened, or only a claim. Try again.
    #[error("resource `{}`: the storage is unavailable, and nothing was changed", .0.resource)]
    Unavailable(#[source] StorageRequestError),
    /// The request is wrong or not allowed, or the storage's certificate is not trusted. Sending it
    /// again would not help.
    #[error("resource `{}`: the storage rejected the request", .0.resource)]
    Rejected(#[source] StorageRequestError),
    /// The token had to be reissued, and the lock service did not answer, or rejected the request. Nothing was
    /// changed. After [`BackendError::Unavailable`](crate::backend::BackendError::Unavailable), try
    /// again.
    #[error(transparent)]
    LockService(LockServiceError),
}

fn lost_text(lock: &ResourceName, rejection: Option<&Rejection>) -> String {
    match rejection {
        Some(rejection) => {
            format!("the lease of lock `{lock}` is lost: another client was let in: {rejection}")
        }
        None => Lost { lock: lock.clone() }.to_string(),
    }
}

impl From<Lost> for FencedError {
    fn from(lost: Lost) -> Self {
        Self::Lost { lock: lost.lock, rejection: None }
    }
}

impl From<RenewError> for FencedError {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::Lost(lost) => lost.into(),
            RenewError::LockService { lock, source } => {
                Self::LockService(LockServiceError { lock, source })
            }
        }
    }
}

impl From<StorageError> for FencedError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Unavailable(cause) => Self::Unavailable(cause),
            StorageError::Unknown(cause) => Self::Unknown(cause),
            StorageError::Rejected(cause) => Self::Rejected(cause),
        }
    }
}

//! A resource of the storage, used under a lease.

use std::sync::Arc;

use bytes::Bytes;
use fence::{Fence, Refusal, ResourceName, Token};
use tokio::sync::Mutex;

use super::{Answer, Storage, StorageError, Value};
use crate::{
    Lease, Lost, RenewError,
    backend::BackendError,
    lease::{Held, Loss},
};

/// A resource of the storage, used under a lease.
///
/// Every read claims, so that older tokens are refused from then on, and every write comes with the
/// lease's token. What it does beyond that, for the case that the lock service lost its counter:
///
/// - **Until the lease's first accepted claim on the resource**, a refusal is answered by a reissue: if
///   the lock is still ours, the lease goes on with a higher token.
/// - **After it**, a refusal means that somebody else was let in. What was read is void, the lease is
///   lost, and the work starts again from acquire. A resource is used with the token that it was
///   claimed with, also when the lease has gone on with a higher one for the sake of another resource.
/// - **It never sends a write twice.** After a write with unknown outcome, which may yet land, the
///   lease takes a higher token and makes a fenced read with it before anything else: that shows
///   whether the write landed, and cuts it off if it did not.
///
/// All that are made of one lease (and its clones) know what the others have claimed; what they do
/// with one resource, they do one after the other. They don't keep the lease: it is released with its
/// last clone, and from then on they are of no use.
#[derive(Clone, Debug)]
pub struct FencedResource {
    storage: Storage,
    held: Arc<Held>,
    resource: ResourceName,
    claim: SharedClaim,
}

/// What all that are made of one lease know of one resource.
pub(crate) type SharedClaim = Arc<Mutex<Claim>>;

/// What a lease has claimed of a resource.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Claim {
    /// Nothing was accepted yet, and nothing was read.
    #[default]
    None,
    /// A claim with this token was accepted. Everything else is sent with it too: a higher one, which
    /// the lease may have by now for the sake of another resource, would carry a write past somebody
    /// who has been let in since.
    Accepted(Token),
    /// A write was sent with this token, and may yet land.
    Unsettled(Token),
}

/// Why a resource was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FencedError {
    /// The lease is over: this call has changed nothing, what was read is void, and the work starts
    /// again from acquire. What is [`Unknown`](Self::Unknown) of a write before stays so.
    #[error("{}", match .refusal {
        Some(refusal) => format!("the lease is lost: somebody else was let in: {refusal}"),
        None => Lost.to_string(),
    })]
    Lost {
        /// What the storage said; `None` if it was not asked.
        refusal: Option<Refusal>,
    },
    /// A write may have landed, or may yet. Read before anything else: until then, writes are not
    /// sent, and end with this error too. If it did not land, work out what to write from what that
    /// read returned: somebody else may have written meanwhile.
    #[error("it is not known whether the last write landed; a read tells: {0}")]
    Unknown(String),
    /// Nothing has happened, or only a claim. Try again.
    #[error("the storage is unavailable, and nothing was changed: {0}")]
    Unavailable(String),
    /// The request is wrong; sending it again would not help.
    #[error("the storage rejected the request: {0}")]
    Rejected(String),
    /// The token was refused or is to be swapped, and the lock service did not answer, or refused.
    /// Nothing was changed. Try again, if the error says that it may help.
    #[error(transparent)]
    LockService(BackendError),
}

impl FencedResource {
    pub(super) fn new(storage: Storage, lease: &Lease, resource: ResourceName) -> Self {
        let held = lease.held().clone();
        let claim = held.claim(&storage.base, &resource);
        Self { storage, held, resource, claim }
    }

    /// Claims the resource and reads its value, in one step. `None` if there is no value.
    ///
    /// # Errors
    /// See [`FencedError`]; never [`FencedError::Unknown`].
    ///
    /// # Cancellation safety
    /// If this future is dropped, the resource may have been claimed.
    pub async fn read(&self) -> Result<Option<Value>, FencedError> {
        let mut claim = self.claim.lock().await;
        if let Claim::Unsettled(token) = *claim {
            self.held.reissue(token).await?;
        }
        let read = async |fence: Fence| self.storage.fenced_read(&self.resource, &fence).await;
        self.claiming(&mut claim, read).await
    }

    /// Sets the value, and returns its version. Claims before, if nothing was claimed yet.
    ///
    /// # Errors
    /// See [`FencedError`]. After [`FencedError::Unknown`], read.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the write may still land: read, as after [`FencedError::Unknown`].
    pub async fn write(
        &self,
        content_type: &str,
        value: impl Into<Bytes>,
    ) -> Result<u64, FencedError> {
        let value = value.into();
        let write = async |fence: Fence| {
            self.storage.write(&self.resource, &fence, content_type, value).await
        };
        self.changing(write).await
    }

    /// Removes the value, if there is one. Claims before, if nothing was claimed yet.
    ///
    /// # Errors
    /// See [`FencedError`]. After [`FencedError::Unknown`], read.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the delete may still land: read, as after [`FencedError::Unknown`].
    pub async fn delete(&self) -> Result<(), FencedError> {
        let delete = async |fence: Fence| self.storage.delete(&self.resource, &fence).await;
        self.changing(delete).await
    }

    /// Asks for something that claims, and goes on with a higher token as long as nothing was claimed
    /// before.
    async fn claiming<T>(
        &self,
        claim: &mut Claim,
        ask: impl AsyncFn(Fence) -> Result<Answer<T>, StorageError>,
    ) -> Result<T, FencedError> {
        loop {
            let fence = self.fence(claim)?;
            let token = fence.token;
            match ask(fence).await {
                Ok(Answer::Accepted(value)) => {
                    *claim = Claim::Accepted(token);
                    return Ok(value);
                }
                Ok(Answer::Refused(refusal)) => match claim {
                    Claim::None => {
                        self.held.reissue(refusal.highest_token).await?;
                    }
                    Claim::Accepted(_) | Claim::Unsettled(_) => return Err(self.lost(refusal)),
                },
                // A claim that was not heard of has read nothing.
                Err(StorageError::Unknown(reason) | StorageError::Unavailable(reason)) => {
                    return Err(FencedError::Unavailable(reason));
                }
                Err(StorageError::Rejected(reason)) => return Err(FencedError::Rejected(reason)),
            }
        }
    }

    /// Sends a change, once.
    async fn changing<T>(
        &self,
        send: impl AsyncFnOnce(Fence) -> Result<Answer<T>, StorageError>,
    ) -> Result<T, FencedError> {
        let mut claim = self.claim.lock().await;
        match *claim {
            Claim::None => {
                let ask = async |fence: Fence| self.storage.claim(&self.resource, &fence).await;
                self.claiming(&mut claim, ask).await?;
            }
            Claim::Accepted(_) => {}
            Claim::Unsettled(_) => {
                return Err(FencedError::Unknown("it was not read since".to_owned()));
            }
        }
        let fence = self.fence(&claim)?;
        let token = fence.token;
        // From here on it may land, also if this future is dropped.
        *claim = Claim::Unsettled(token);
        let answer = send(fence).await;
        if !matches!(answer, Err(StorageError::Unknown(_))) {
            *claim = Claim::Accepted(token);
        }
        match answer {
            Ok(Answer::Accepted(value)) => Ok(value),
            Ok(Answer::Refused(refusal)) => Err(self.lost(refusal)),
            Err(StorageError::Unknown(reason)) => Err(FencedError::Unknown(reason)),
            Err(StorageError::Unavailable(reason)) => Err(FencedError::Unavailable(reason)),
            Err(StorageError::Rejected(reason)) => Err(FencedError::Rejected(reason)),
        }
    }

    /// What to send: the token of the claim, or else the lease's.
    fn fence(&self, claim: &Claim) -> Result<Fence, Lost> {
        let fence = self.held.fence()?;
        Ok(match *claim {
            Claim::Accepted(token) => Fence { token, ..fence },
            Claim::None | Claim::Unsettled(_) => fence,
        })
    }

    /// Notes that somebody else was let in.
    fn lost(&self, refusal: Refusal) -> FencedError {
        self.held.lose(Loss::Refused);
        FencedError::Lost { refusal: Some(refusal) }
    }
}

impl From<Lost> for FencedError {
    fn from(_: Lost) -> Self {
        Self::Lost { refusal: None }
    }
}

impl From<RenewError> for FencedError {
    fn from(error: RenewError) -> Self {
        match error {
            RenewError::Lost(lost) => lost.into(),
            RenewError::LockService(error) => Self::LockService(error),
        }
    }
}

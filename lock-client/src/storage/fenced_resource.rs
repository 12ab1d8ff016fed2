//! A resource of the storage that is used under a lease.

use std::sync::Arc;

use bytes::Bytes;
use fence::{Fence, Rejection, ResourceName};

use super::{
    answer::{Answer, Value},
    claim::{Claim, SharedClaim},
    client::Storage,
    error::{FencedError, StorageError, StorageRequestError},
    repeatable::Repeatable,
};
use crate::{
    error::Lost,
    lease::{Lease, held::Held},
    observe::Loss,
};

/// A resource of the storage that is used under a lease.
///
/// Every read claims, so that older tokens are rejected from then on. Every write carries the
/// lease's token. In case the lock service lost its counter, it follows three rules:
///
/// - **Until the lease's first accepted claim on the resource**, it answers a rejection by a reissue:
///   if the lease still holds the lock, it continues with a higher token.
/// - **After it**, a rejection means that another client was let in. What was read is void, the lease
///   is lost, and the work must start again with an acquire. A resource is used with the token that
///   it was claimed with, even if the lease has a higher one by now for another resource.
/// - **It sends a write again only under its number**, which the storage carries out once. If the
///   outcome stays unknown, the write may still be carried out. So the lease takes a higher token and
///   makes a fenced read with it before anything else. The read shows whether the write was carried
///   out. If it was not, the read makes the storage reject it.
///
/// All values made of one lease and its clones share their claims. Operations on one resource run
/// one after the other. A `FencedResource` does not keep the lease: the lock is released with the
/// lease's last clone, and every call fails from then on.
#[derive(Clone, Debug)]
pub struct FencedResource {
    storage: Storage,
    held: Arc<Held>,
    resource: ResourceName,
    claim: SharedClaim,
}

impl Storage {
    /// Uses a resource under a lease. Most callers need only this.
    pub fn under(&self, lease: &Lease, resource: &ResourceName) -> FencedResource {
        FencedResource::new(self.clone(), lease, resource.clone())
    }
}

impl FencedResource {
    fn new(storage: Storage, lease: &Lease, resource: ResourceName) -> Self {
        let held = lease.held().clone();
        let claim = held.claim(&storage.url, &resource);
        Self { storage, held, resource, claim }
    }

    /// Claims the resource and reads its value, in one step. Returns `None` if there is no value.
    ///
    /// # Errors
    /// See [`FencedError`]. It is never [`FencedError::Unknown`].
    ///
    /// # Cancellation safety
    /// If this future is dropped, the resource may have been claimed.
    pub async fn read(&self) -> Result<Option<Value>, FencedError> {
        let mut claim = self.claim.lock().await;
        if let Claim::Unknown(token) = *claim {
            self.held.reissue(token).await?;
        }
        let read = async |fence: Fence| self.storage.fenced_read(&self.resource, &fence).await;
        self.claiming(&mut claim, read).await
    }

    /// Sets the value, and returns its version. Claims the resource first, if it was not claimed
    /// yet.
    ///
    /// # Errors
    /// See [`FencedError`]. After [`FencedError::Unknown`], read.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the write may still be carried out. Read, as after
    /// [`FencedError::Unknown`].
    pub async fn write(
        &self,
        content_type: &str,
        value: impl Into<Bytes>,
    ) -> Result<u64, FencedError> {
        let write = async |fence: Fence| {
            let write = Repeatable::new(&self.storage, &self.held);
            write.write(&self.resource, &fence, content_type, value).await
        };
        self.changing(write).await
    }

    /// Deletes the value, if there is one. Claims the resource first, if it was not claimed yet.
    ///
    /// # Errors
    /// See [`FencedError`]. After [`FencedError::Unknown`], read.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the delete may still be carried out. Read, as after
    /// [`FencedError::Unknown`].
    pub async fn delete(&self) -> Result<(), FencedError> {
        let delete = async |fence: Fence| {
            let delete = Repeatable::new(&self.storage, &self.held);
            delete.delete(&self.resource, &fence).await
        };
        self.changing(delete).await
    }

    /// Sends a request that claims. Reissues the token after a rejection, as long as nothing was
    /// claimed.
    async fn claiming<T>(
        &self,
        claim: &mut Claim,
        send: impl AsyncFn(Fence) -> Result<Answer<T>, StorageError>,
    ) -> Result<T, FencedError> {
        loop {
            let fence = self.fence(claim)?;
            let token = fence.token;
            match send(fence).await {
                Ok(Answer::Accepted(value)) => {
                    *claim = Claim::Accepted(token);
                    return Ok(value);
                }
                Ok(Answer::Rejected(rejection)) => match claim {
                    Claim::None => {
                        self.held.reissue(rejection.highest_token).await?;
                    }
                    Claim::Accepted(_) | Claim::Unknown(_) => return Err(self.lost(rejection)),
                },
                // A claim without an answer has read nothing.
                Err(StorageError::Unknown(cause)) => return Err(FencedError::Unavailable(cause)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn changing<T>(
        &self,
        send: impl AsyncFnOnce(Fence) -> Result<Answer<T>, StorageError>,
    ) -> Result<T, FencedError> {
        let mut claim = self.claim.lock().await;
        match *claim {
            Claim::None => {
                let send = async |fence: Fence| self.storage.claim(&self.resource, &fence).await;
                self.claiming(&mut claim, send).await?;
            }
            Claim::Accepted(_) => {}
            Claim::Unknown(_) => {
                let reason = "it was not read since";
                let cause = StorageRequestError::new(&self.storage.url, &self.resource, reason);
                return Err(FencedError::Unknown(cause));
            }
        }
        let fence = self.fence(&claim)?;
        let token = fence.token;
        // From here on, the change may be carried out, even if this future is dropped.
        *claim = Claim::Unknown(token);
        let answer = send(fence).await;
        if !matches!(answer, Err(StorageError::Unknown(_))) {
            *claim = Claim::Accepted(token);
        }
        match answer? {
            Answer::Accepted(value) => Ok(value),
            Answer::Rejected(rejection) => Err(self.lost(rejection)),
        }
    }

    /// The token to send, the claim's or else the lease's, and the holder.
    fn fence(&self, claim: &Claim) -> Result<Fence, Lost> {
        let fence = self.held.fence()?;
        Ok(match *claim {
            Claim::Accepted(token) => Fence { token, ..fence },
            Claim::None | Claim::Unknown(_) => fence,
        })
    }

    /// Makes the lease lost, because another client was let in.
    fn lost(&self, rejection: Rejection) -> FencedError {
        let Lost { lock } = self.held.lose(Loss::Rejected);
        FencedError::Lost { lock, rejection: Some(rejection) }
    }
}

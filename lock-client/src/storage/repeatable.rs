//! Changes that are sent again until their outcome is known.

use std::time::Duration;

use bytes::Bytes;
use fence::{Fence, ResourceName};
use tokio::time::sleep;

use super::{
    answer::Answer,
    client::Storage,
    error::{StorageError, StorageRequestError},
};
use crate::{
    clock::Moment,
    lease::{Lease, held::Held},
    retry::pauses,
};

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A write or a delete with a number of a lease. If it is not answered, it is sent again under this
/// number, which the storage carries out only once.
#[derive(Clone, Copy, Debug)]
pub struct Repeatable<'a> {
    storage: &'a Storage,
    held: &'a Held,
    sequence: u64,
}

impl Storage {
    /// Takes the next number of the lease, for one write or delete. Until that is answered, make no
    /// other one on the resource. It is repeated for as long as the lease has left now.
    pub fn repeatable<'a>(&'a self, lease: &'a Lease) -> Repeatable<'a> {
        Repeatable::new(self, lease.held())
    }
}

impl<'a> Repeatable<'a> {
    pub(super) fn new(storage: &'a Storage, held: &'a Held) -> Self {
        Self { storage, held, sequence: held.next_sequence() }
    }

    /// Sets a value, and returns its version.
    ///
    /// # Errors
    /// See [`StorageError`]. [`StorageError::Unknown`] if one try was not answered, and the next ones
    /// were not answered either, or were rejected.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the write may still be carried out.
    pub async fn write(
        self,
        resource: &ResourceName,
        fence: &Fence,
        content_type: &str,
        value: impl Into<Bytes>,
    ) -> Result<Answer<u64>, StorageError> {
        let (value, number) = (value.into(), Some(self.sequence));
        let write = || self.storage.put(resource, fence, number, content_type, value.clone());
        self.until_known(resource, write).await
    }

    /// Deletes a value, if there is one.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    ///
    /// # Cancellation safety
    /// If this future is dropped, the delete may still be carried out.
    pub async fn delete(
        self,
        resource: &ResourceName,
        fence: &Fence,
    ) -> Result<Answer<()>, StorageError> {
        let delete = || self.storage.remove(resource, fence, Some(self.sequence));
        self.until_known(resource, delete).await
    }

    /// Sends the change until it is answered, or there is no time left.
    async fn until_known<T, F>(
        &self,
        resource: &ResourceName,
        send: impl Fn() -> F,
    ) -> Result<Answer<T>, StorageError>
    where
        F: Future<Output = Result<Answer<T>, StorageError>>,
    {
        let deadline = Moment::now() + self.held.remaining();
        let mut pauses = pauses(LONGEST_PAUSE);
        let mut is_repeated = false;
        loop {
            let cause = match send().await {
                Err(StorageError::Unknown(cause)) => cause,
                answer if !is_repeated => return answer,
                // From here on, an answer counts only if it is that to the number: it alone says what
                // the tries before have done.
                Ok(Answer::Accepted(accepted)) => return Ok(Answer::Accepted(accepted)),
                Err(StorageError::Unavailable(cause)) => cause,
                Err(StorageError::Rejected(cause)) => return Err(StorageError::Unknown(cause)),
                Ok(Answer::Rejected(rejection)) => {
                    let reason =
                        format!("a try was not answered, and the next rejected: {rejection}");
                    let cause = StorageRequestError::new(&self.storage.url, resource, reason);
                    return Err(StorageError::Unknown(cause));
                }
            };
            let pause = pauses.next().expect("the pauses never end");
            // The lease may have ended before its deadline.
            if deadline.remaining().min(self.held.remaining()) <= pause {
                return Err(StorageError::Unknown(cause));
            }
            sleep(pause).await;
            is_repeated = true;
        }
    }
}

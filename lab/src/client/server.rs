//! A storage server, as a client uses it.

use std::time::Duration;

use fence::{Fence, Holder, ResourceName};
use lock_client::{
    Lease,
    storage::{Answer, FencedError, Storage, StorageError, Value},
};
use tokio::time::sleep;

use super::{lock::Lock, report::Reports, setup::Offer};
use crate::{
    http_client::http_client,
    record::{Content, EventKind},
};

/// The pause before a write is sent again.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Server {
    storage: Storage,
    url: String,
    resource: ResourceName,
    offer: Offer,
}

impl Server {
    pub(super) fn new(url: &str, resource: &ResourceName, offer: Offer) -> anyhow::Result<Self> {
        let storage = Storage::new(url)?;
        Ok(Self { storage, url: url.to_owned(), resource: resource.clone(), offer })
    }

    /// Claims with what the client offers, and reads.
    pub(super) async fn read(&self, lock: &Lock, reports: &mut Reports) -> anyhow::Result<()> {
        let (resource, mut token) = (&self.resource, lock.token());
        let answer = match self.offer {
            Offer::Nothing | Offer::WithWrites => {
                Answer::Accepted(self.storage.read(resource).await?)
            }
            Offer::Token | Offer::TokenAndHolder | Offer::Numbered => {
                let read = self.storage.fenced_read(resource, &self.offered(lock)?).await;
                let Some(answer) = decided(read)? else {
                    reports.add((token, EventKind::Unavailable));
                    return Ok(());
                };
                answer
            }
            Offer::Reissued => {
                let read = self.read_reissuing(lock.lease()?, reports).await?;
                token = Some(lock.lease()?.token()?);
                read
            }
        };
        match answer {
            Answer::Accepted(value) => {
                let unfenced = self.offer == Offer::Nothing;
                let claims_nothing = unfenced || self.offer == Offer::WithWrites;
                let content = Content {
                    version: (!unfenced).then(|| value.as_ref().map(|value| value.version)),
                    value: value.map(|value| String::from_utf8_lossy(&value.bytes).into_owned()),
                    claimed: claims_nothing.then_some(false),
                };
                reports.add((token, EventKind::Read(content)));
            }
            Answer::Rejected(rejection) => {
                reports.add((rejection.token, EventKind::ClaimRejected(rejection.into())));
            }
        }
        Ok(())
    }

    /// Writes with what the client offered as of the last check, without another check.
    pub(super) async fn write(
        &self,
        value: String,
        lock: &Lock,
        reports: &mut Reports,
    ) -> anyhow::Result<()> {
        let (resource, content_type) = (&self.resource, "text/plain");
        let answer = match self.offer {
            Offer::Nothing => return self.write_unfenced(value, reports).await,
            Offer::WithWrites | Offer::Token | Offer::TokenAndHolder | Offer::Numbered => {
                let offered = self.offered(lock)?;
                let written = if self.offer == Offer::Numbered {
                    self.write_until_decided(lock.lease()?, &offered, content_type, &value).await
                } else {
                    self.storage.write(resource, &offered, content_type, value.clone()).await
                };
                let Some(answer) = decided(written)? else {
                    reports.add((lock.token(), EventKind::Unavailable));
                    return Ok(());
                };
                answer
            }
            Offer::Reissued => {
                let fenced = self.storage.under(lock.lease()?, resource);
                answer(fenced.write(content_type, value.clone()).await)?
            }
        };
        match answer {
            Answer::Accepted(version) => {
                let version = Some(Some(version));
                let content = Content { value: Some(value), version, claimed: None };
                reports.add((lock.token(), EventKind::Written { content, overwrites_unseen: 0 }));
            }
            Answer::Rejected(rejection) => {
                reports.add(rejection);
                // The lock client concludes from the rejection that somebody else was let in.
                if self.offer == Offer::Reissued && lock.lease()?.token().is_err() {
                    reports.add(EventKind::Lost);
                }
            }
        }
        Ok(())
    }

    /// Writes, as often as the storage does not decide, while the lease lasts.
    async fn write_until_decided(
        &self,
        lease: &Lease,
        offered: &Fence,
        content_type: &str,
        value: &str,
    ) -> Result<Answer<u64>, StorageError> {
        loop {
            let write = self.storage.repeatable(lease);
            match write.write(&self.resource, offered, content_type, value.to_owned()).await {
                // Nothing has happened, so that another write may be sent.
                Err(StorageError::Unavailable(_)) if lease.token().is_ok() => sleep(PAUSE).await,
                written => return written,
            }
        }
    }

    fn offered(&self, lock: &Lock) -> anyhow::Result<Fence> {
        let fence = lock.fence()?.clone();
        let holder = if self.offer == Offer::Token { Holder::EMPTY } else { fence.holder };
        Ok(Fence { holder, ..fence })
    }

    /// Reads through the lock client, which reissues the token if its first claim is rejected.
    async fn read_reissuing(
        &self,
        lease: &Lease,
        reports: &mut Reports,
    ) -> anyhow::Result<Answer<Option<Value>>> {
        // The lock client would not report the rejection.
        if let Answer::Rejected(rejection) =
            self.storage.claim(&self.resource, &lease.fence()?).await?
        {
            reports.add((rejection.token, EventKind::ClaimRejected(rejection.into())));
        }
        let instead_of = lease.token()?;
        let read = answer(self.storage.under(lease, &self.resource).read().await)?;
        let token = lease.token()?;
        if token > instead_of {
            reports.add((token, EventKind::Reissued { instead_of }));
        }
        Ok(read)
    }

    /// Writes without a token. Only a storage that checks nothing accepts this.
    async fn write_unfenced(&self, value: String, reports: &mut Reports) -> anyhow::Result<()> {
        let url = format!("{}/v1/resources/{}", self.url, self.resource);
        let request = http_client().put(url).header("Content-Type", "text/plain");
        request.body(value.clone()).send().await?.error_for_status()?;
        let content = Content { value: Some(value), ..Content::default() };
        reports.add(EventKind::Written { content, overwrites_unseen: 0 });
        Ok(())
    }
}

/// The storage's answer, if it has decided.
fn decided<T>(answer: Result<Answer<T>, StorageError>) -> Result<Option<Answer<T>>, StorageError> {
    match answer {
        Err(StorageError::Unavailable(_) | StorageError::Unknown(_)) => Ok(None),
        answer => answer.map(Some),
    }
}

fn answer<T>(answer: Result<T, FencedError>) -> anyhow::Result<Answer<T>> {
    match answer {
        Ok(value) => Ok(Answer::Accepted(value)),
        Err(FencedError::Lost { rejection: Some(rejection), .. }) => {
            Ok(Answer::Rejected(rejection))
        }
        Err(error) => Err(error.into()),
    }
}

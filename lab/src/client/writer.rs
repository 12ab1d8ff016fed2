//! A client of the storage server whose lock service may have lost its counter. The scenarios drive it,
//! as a process of its own, step by step.

use std::{process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use fence::{Fence, Holder, Refusal, ResourceName, Token};
use lock_client::{
    Lease, Locks, Terms, Ttl,
    redis::Redis,
    redlock::Redlock,
    storage::{Answer, FencedError, Storage, Value},
};
use serde_json::json;

use super::{
    REFUSED,
    steps::{print, release, step, told},
};

/// What a writer is to do.
#[derive(Args, Debug)]
pub struct Writer {
    resource: ResourceName,
    /// What to write
    value: String,
    /// One Redis, or the nodes that keep the lock together
    #[arg(long, value_name = "URL", required = true)]
    redis: Vec<String>,
    #[arg(long, value_name = "URL")]
    storage: String,
    #[arg(long, value_name = "MILLISECONDS")]
    ttl_ms: u64,
    #[arg(long)]
    offer: Offer,
}

/// What a writer offers to the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Offer {
    /// Its token alone: the storage can't tell two holders of one token apart.
    Token,
    /// Its token and its holder, by the lock client, which takes a higher token if it is refused before
    /// it has read.
    TokenAndHolder,
}

/// The storage has let somebody else in: what was read is void.
struct LetIn(Refusal);

impl Writer {
    /// Acquires the lock, claims and reads, checks the lease, writes and releases; prints each step as
    /// a JSON line, and waits for a line on stdin before it goes on.
    ///
    /// # Errors
    /// If the lock, the storage or stdin fails.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let locks = match &self.redis[..] {
            [url] => Locks::new(Redis::open(url)?),
            urls => Locks::from(Redlock::open(urls)?),
        };
        let storage = Storage::new(&self.storage)?;
        let ttl = Ttl::new(Duration::from_millis(self.ttl_ms))?;
        // A renewal would tell of a lost lock, but perhaps too late.
        let terms = Terms::new(ttl).no_wait().without_renewal();
        let lease = locks.acquire(&self.resource, terms).await?;
        let written = self.write_under(&lease, &storage).await?;
        if let Err(LetIn(refusal)) = &written {
            step(&told("refused", refusal)).await?;
        }
        if lease.token().is_err() {
            step(&json!({"event": "lost"})).await?;
        }
        print(&release(lease).await?);
        Ok(written.map_or_else(|_| ExitCode::from(REFUSED), |()| ExitCode::SUCCESS))
    }

    async fn write_under(
        &self,
        lease: &Lease,
        storage: &Storage,
    ) -> anyhow::Result<Result<(), LetIn>> {
        let token = lease.token()?;
        step(&json!({"event": "acquired", "token": token})).await?;

        let before = match self.read(lease, storage).await? {
            Ok(before) => before.map(|value| String::from_utf8_lossy(&value.bytes).into_owned()),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let token = lease.token()?;
        step(&json!({"event": "read", "token": token, "value": before})).await?;

        let remaining_ms: u64 = lease.remaining().as_millis().try_into()?;
        step(&json!({"event": "lease-checked", "token": token, "remaining_ms": remaining_ms}))
            .await?;

        let written = self.write(lease, storage).await?;
        if written.is_ok() {
            step(&json!({"event": "written", "token": token, "value": self.value})).await?;
        }
        Ok(written)
    }

    async fn read(
        &self,
        lease: &Lease,
        storage: &Storage,
    ) -> anyhow::Result<Result<Option<Value>, LetIn>> {
        let answer = match self.offer {
            Offer::Token => storage.fenced_read(&self.resource, &token_alone(lease)?).await?,
            Offer::TokenAndHolder => {
                self.tell_refusal(lease, storage).await?;
                let before = lease.token()?;
                let read = let_in(storage.under(lease, &self.resource).read().await)?;
                if read.is_ok() {
                    let after = lease.token()?;
                    if after > before {
                        tell_reissue(before, after).await?;
                    }
                }
                return Ok(read);
            }
        };
        Ok(match answer {
            Answer::Accepted(value) => Ok(value),
            Answer::Refused(refusal) => Err(LetIn(refusal)),
        })
    }

    /// Tells of a refused claim, which the lock client would mend without a word.
    async fn tell_refusal(&self, lease: &Lease, storage: &Storage) -> anyhow::Result<()> {
        if let Answer::Refused(refusal) = storage.claim(&self.resource, &lease.fence()?).await? {
            step(&told("claim-refused", &refusal)).await?;
        }
        Ok(())
    }

    async fn write(&self, lease: &Lease, storage: &Storage) -> anyhow::Result<Result<(), LetIn>> {
        let (value, content_type) = (self.value.clone(), "text/plain");
        match self.offer {
            Offer::Token => {
                let fence = token_alone(lease)?;
                Ok(match storage.write(&self.resource, &fence, content_type, value).await? {
                    Answer::Accepted(_) => Ok(()),
                    Answer::Refused(refusal) => Err(LetIn(refusal)),
                })
            }
            Offer::TokenAndHolder => {
                let resource = storage.under(lease, &self.resource);
                let_in(resource.write(content_type, value).await.map(|_| ()))
            }
        }
    }
}

fn token_alone(lease: &Lease) -> anyhow::Result<Fence> {
    Ok(Fence { token: lease.token()?, holder: Holder::EMPTY })
}

async fn tell_reissue(before: Token, after: Token) -> anyhow::Result<()> {
    step(&json!({"event": "reissued", "token": after, "instead_of": before})).await
}

fn let_in<T>(answer: Result<T, FencedError>) -> anyhow::Result<Result<T, LetIn>> {
    match answer {
        Ok(value) => Ok(Ok(value)),
        Err(FencedError::Lost { refusal: Some(refusal), .. }) => Ok(Err(LetIn(refusal))),
        Err(error) => Err(error.into()),
    }
}

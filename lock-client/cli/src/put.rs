//! `lock-client put`.

use std::time::Duration;

use clap::Args;
use fence::{Refusal, ResourceName};

use super::{
    Failure, LockService,
    events::{Event, Steps},
    name,
    run::not_held_above,
    signals::{Signals, ended_by},
    storage,
    terms::acquire,
    ttl, with_causes,
};
use lock_client::{
    Lease, Locks, Lost, Released, Terms, Ttl,
    storage::{Answer, FencedError, Storage, StorageError},
};

#[derive(Args, Debug)]
pub(crate) struct Put {
    /// The resource to write, and the lock that guards it
    #[arg(value_parser = name)]
    resource: ResourceName,

    /// The value to write
    value: String,

    #[command(flatten)]
    lock_service: LockService,

    /// The storage server
    #[arg(long, env = "FENCED_STORAGE", hide_env_values = true, value_name = "URL")]
    storage: String,

    /// How long the lock is granted for, such as 10s or 500ms
    #[arg(long, default_value = "10s", value_parser = ttl, value_name = "DURATION")]
    ttl: Ttl,

    /// How long to keep the lock between reading and writing, such as 2s
    #[arg(long, value_name = "DURATION")]
    hold: Option<humantime::Duration>,

    /// Wait for a line on stdin after each step
    #[arg(long)]
    step: bool,
}

impl Put {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let storage = storage(&self.storage)?;
        not_held_above(&self.resource)?;
        self.lock_service.with_locks(async |locks| self.put(locks, &storage).await).await
    }

    async fn put(&self, locks: &Locks, storage: &Storage) -> Result<(), Failure> {
        let steps = if self.step { Steps::Stepwise } else { Steps::Through };

        let mut signals = Signals::to_end()?;
        let terms = Terms::new(self.ttl).no_wait().without_renewal();
        let lease = acquire(locks, &self.resource, terms, &mut signals).await?;
        let (written, interrupted) = tokio::select! {
            biased;
            written = self.write_under(&lease, storage, steps) => (written, false),
            signal = signals.next() => (Err(ended_by(signal)), true),
        };
        let event = match lease.release().await {
            Ok(Released::Released) => Event::Released,
            Ok(Released::NotHeld | Released::StillHeld) => Event::LeaseLost,
            Err(error) => {
                eprintln!("lock-client: the lock was not released: {}", with_causes(&error));
                return written;
            }
        };
        if interrupted {
            return written;
        }
        // What became of the write matters more than what follows it.
        tokio::select! {
            printed = Steps::Through.print(&event) => warn(printed),
            _ = signals.next() => {}
        }
        written
    }

    /// Reads, holds, checks the lease and writes.
    async fn write_under(
        &self,
        lease: &Lease,
        storage: &Storage,
        steps: Steps,
    ) -> Result<(), Failure> {
        let token = lease.token()?;
        steps
            .print(&Event::Acquired {
                resource: self.resource.as_str(),
                token,
                holder: lease.holder().redacted(),
                remaining_ms: millis(lease.remaining()),
            })
            .await?;

        let value = match storage.under(lease, &self.resource).read().await {
            Ok(value) => value,
            Err(FencedError::Lost { refusal: Some(refusal), .. }) => {
                return Err(refused(steps, refusal).await);
            }
            Err(error) => return Err(error.into()),
        };
        let acquired = token;
        let token = lease.token()?;
        if token > acquired {
            steps.print(&Event::Reissued { token }).await?;
        }
        steps
            .print(&Event::Read {
                token,
                version: value.as_ref().map(|value| value.version),
                value: value.map(|value| String::from_utf8_lossy(&value.bytes).into_owned()),
            })
            .await?;

        if let Some(hold) = self.hold {
            steps.print(&Event::Holding { token, for_ms: millis(*hold) }).await?;
            tokio::time::sleep(*hold).await;
        }

        // A pause may come after any check of a lease: here it can be seen what then becomes of a write.
        let fence = lease.fence()?;
        let remaining_ms = millis(lease.remaining());
        steps.print(&Event::LeaseChecked { token, remaining_ms }).await?;

        match storage.write(&self.resource, &fence, "text/plain", self.value.clone()).await {
            Ok(Answer::Accepted(version)) => {
                warn(steps.print(&Event::Written { token, version, value: &self.value }).await);
                Ok(())
            }
            Ok(Answer::Refused(refusal)) => Err(refused(steps, refusal).await),
            Err(error @ StorageError::Unknown(_)) => {
                warn(steps.print(&Event::OutcomeUnknown { token }).await);
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

async fn refused(steps: Steps, refusal: Refusal) -> Failure {
    let Refusal { reason, token, highest_token } = refusal;
    warn(steps.print(&Event::Refused { token, highest_token, reason: reason.slug() }).await);
    Failure::Refused
}

/// Tells of a step that could not be told, where the exit code has something else to tell.
fn warn(printed: Result<(), Failure>) {
    if let Err(failure) = printed {
        eprintln!("lock-client: {}", failure.message());
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

impl From<Lost> for Failure {
    fn from(_: Lost) -> Self {
        Self::LeaseLost
    }
}

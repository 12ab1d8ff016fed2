//! `lock-client put`.

mod steps;

use std::time::Duration;

use clap::Args;
use fence::{Rejection, ResourceName};
use lock_client::{
    Lease, Locks, Order, Released, Terms, Ttl,
    storage::{Answer, FencedError, Storage, StorageError},
};

use self::steps::{Event, Steps};
use crate::{
    acquisition::{acquire, parse_ttl},
    environment::reject_lock_of_outer_run,
    exit_code,
    failure::{Failure, with_causes},
    handle::parse_name,
    lock_service::LockService,
    signals::{ENDING, Signals},
    stderr,
    storage::StorageServer,
};

#[derive(Args, Debug)]
pub(crate) struct Put {
    /// The resource to write, and the name of its lock
    #[arg(value_parser = parse_name)]
    resource: ResourceName,

    /// The value to write
    value: String,

    #[command(flatten)]
    storage: StorageServer,

    /// How long the lock is granted for, such as 10s or 500ms
    #[arg(long, default_value = "10s", value_parser = parse_ttl, value_name = "DURATION")]
    ttl: Ttl,

    /// How long to hold the lock between the read and the write, such as 2s
    #[arg(long, value_name = "DURATION")]
    hold: Option<humantime::Duration>,

    /// Wait for a line on stdin after each step
    #[arg(long)]
    step: bool,
}

impl Put {
    pub(crate) async fn run(self, lock_service: &LockService) -> Result<(), Failure> {
        let storage = self.storage.client()?;
        lock_service.with_locks(async |locks| self.put(locks, &storage).await).await
    }

    async fn put(&self, locks: &Locks, storage: &Storage) -> Result<(), Failure> {
        reject_lock_of_outer_run(&self.resource, locks).await?;
        let steps = if self.step { Steps::Stepwise } else { Steps::Through };

        let mut signals = Signals::listen(ENDING)?;
        let terms = Terms::new(self.ttl).no_wait().without_renewal();
        let order = Order::Unordered;
        let lease = acquire(locks, &self.resource, terms, order, &mut signals, None).await?;
        let (written, interrupted) = tokio::select! {
            biased;
            written = self.write_under(&lease, storage, steps) => (written, false),
            signal = signals.next() => (Err(signal.into()), true),
        };
        let event = match lease.release().await {
            Ok(Released::Released) => Event::Released,
            Ok(Released::NotHeld | Released::StillHeld) => Event::LeaseLost,
            Err(error) => {
                let error = with_causes(&error);
                stderr::print(format!("the lock may stay held until its ttl ends: {error}"));
                return written;
            }
        };
        if interrupted {
            return written;
        }
        // The exit code is that of the write, even if this line can't be printed.
        tokio::select! {
            printed = Steps::Through.print(&event) => warn(printed),
            _ = signals.next() => {}
        }
        written
    }

    async fn write_under(
        &self,
        lease: &Lease,
        storage: &Storage,
        steps: Steps,
    ) -> Result<(), Failure> {
        // 1. Report the acquired lock.
        let acquired = lease.token()?;
        steps
            .print(&Event::Acquired {
                resource: self.resource.as_str(),
                token: acquired,
                holder: lease.holder().redacted(),
                remaining_ms: millis(lease.remaining()),
            })
            .await?;

        // 2. Read, and claim: from here on, the storage rejects older tokens. The library may have
        //    to take a higher token for that.
        let value = match storage.under(lease, &self.resource).read().await {
            Ok(value) => value,
            Err(error) => {
                if let FencedError::Lost { rejection: Some(rejection), .. } = &error {
                    report_rejection(steps, rejection).await;
                }
                return Err(error.into());
            }
        };
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

        // 3. Hold the lock.
        if let Some(hold) = self.hold {
            steps.print(&Event::Holding { token, for_ms: millis(*hold) }).await?;
            tokio::time::sleep(*hold).await;
        }

        // 4. Check the lease. A pause may follow any such check: --step shows what happens to a
        //    write after one.
        let fence = lease.fence()?;
        let remaining_ms = millis(lease.remaining());
        steps.print(&Event::LeaseChecked { token, remaining_ms }).await?;

        // 5. Write. Without an answer, the write is sent again, until the lease's deadline.
        let write = storage.repeatable(lease);
        match write.write(&self.resource, &fence, "text/plain", self.value.clone()).await {
            Ok(Answer::Accepted(version)) => {
                warn(steps.print(&Event::Written { token, version, value: &self.value }).await);
                Ok(())
            }
            Ok(Answer::Rejected(rejection)) => {
                report_rejection(steps, &rejection).await;
                Err(Failure::Message(
                    exit_code::TOKEN_REJECTED,
                    format!(
                        "resource `{}`: the storage rejected the token, and nothing was written: \
                     {rejection}",
                        self.resource
                    ),
                ))
            }
            Err(error @ StorageError::Unknown(_)) => {
                warn(steps.print(&Event::OutcomeUnknown { token }).await);
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

async fn report_rejection(steps: Steps, rejection: &Rejection) {
    let Rejection { reason, token, highest_token } = *rejection;
    warn(steps.print(&Event::Rejected { token, highest_token, reason: reason.slug() }).await);
}

/// Reports an event that could not be printed, where the exit code reports something else.
fn warn(printed: Result<(), Failure>) {
    if let Err(failure) = printed
        && let Some(message) = failure.message()
    {
        stderr::print(message);
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

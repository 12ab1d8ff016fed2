//! `lock-client status`.

use clap::Args;
use fence::{ResourceName, Token};
use serde::Serialize;

use super::{Failure, LockService, events::print, name};
use lock_client::backend::Status;

#[derive(Args, Debug)]
pub(crate) struct StatusOf {
    /// The lock's name
    #[arg(value_parser = name)]
    name: ResourceName,

    #[command(flatten)]
    lock_service: LockService,
}

/// What the command prints.
#[derive(Serialize)]
pub(crate) struct Shown<'a> {
    name: &'a ResourceName,
    held: bool,
    /// The owner's token.
    token: Option<Token>,
    /// The owner, redacted.
    holder: Option<String>,
    /// What the lock service will let the owner keep it for.
    remaining_ms: Option<u64>,
    /// The last token issued.
    last_token: Option<u64>,
    /// How many stand in the queue.
    queued: u64,
}

impl StatusOf {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let status = self.lock_service.locks()?.status(&self.name).await?;
        print(&Shown::of(&self.name, &status))
    }
}

impl<'a> Shown<'a> {
    pub(crate) fn of(name: &'a ResourceName, status: &Status) -> Self {
        let held = status.held.as_ref();
        let remaining = held.and_then(|held| held.remaining);
        Self {
            name,
            held: held.is_some(),
            token: held.map(|held| held.token),
            holder: held.map(|held| held.ownership.holder.redacted()),
            remaining_ms: remaining.and_then(|remaining| remaining.as_millis().try_into().ok()),
            last_token: status.last_token,
            queued: status.queued,
        }
    }
}

//! `lock-client status`.

use clap::Args;
use fence::{ResourceName, Token};
use lock_client::backend;
use serde::Serialize;

use crate::{failure::Failure, handle::parse_name, lock_service::LockService, stdout::print};

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// The lock's name
    #[arg(value_parser = parse_name)]
    name: ResourceName,
}

/// The state of a lock, as `status` and `watch` print it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct State<'a> {
    name: &'a ResourceName,
    held: bool,
    /// The holder's token.
    token: Option<Token>,
    /// The holder, redacted.
    holder: Option<String>,
    /// The holder's label: who it says that it is.
    label: Option<&'a str>,
    /// When the lock was granted, in Unix time by the holder's clock.
    since_ms: Option<u64>,
    /// How much of the ttl remains in the lock service.
    remaining_ms: Option<u64>,
    /// On how many nodes of Redlock the holder has the lock.
    nodes: Option<usize>,
    /// The last token issued.
    last_token: Option<u64>,
    /// How many clients wait in the queue.
    queued: u64,
}

impl Status {
    pub(crate) async fn run(self, lock_service: &LockService) -> Result<(), Failure> {
        let status = lock_service.locks()?.status(&self.name).await?;
        print(&State::new(&self.name, &status))
    }
}

impl<'a> State<'a> {
    pub(crate) fn new(name: &'a ResourceName, status: &'a backend::Status) -> Self {
        let held = status.held.as_ref();
        let remaining = held.and_then(|held| held.remaining);
        Self {
            name,
            held: held.is_some(),
            token: held.map(|held| held.token),
            holder: held.map(|held| held.ownership.holder.redacted()),
            label: held.map(|held| held.label.as_str()).filter(|label| !label.is_empty()),
            since_ms: held.and_then(|held| held.since_ms),
            remaining_ms: remaining.and_then(|remaining| remaining.as_millis().try_into().ok()),
            nodes: held.and_then(|held| held.nodes),
            last_token: status.last_token,
            queued: status.queued,
        }
    }
}

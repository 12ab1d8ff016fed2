//! What the bench needs of each lock service.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_client::backend::Backend;

use crate::bench::{
    subject::{Subject, Times},
    work::Work,
};

/// Long enough for a hundred clients that begin to wait at once, with slow commits.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A lock service on a private server, and raw clients of it.
#[async_trait]
pub(super) trait Service: Send + Sync {
    /// The URL of the service, as our command takes it.
    fn url(&self) -> String;

    /// Makes a client of our locks.
    fn backend(&self) -> anyhow::Result<Arc<dyn Backend>>;

    /// Sends a request that changes nothing, and waits for its answer.
    async fn round_trip(&self) -> anyhow::Result<()>;

    /// Returns what the service has done for our locks since it started; `None` if it does not count
    /// that.
    async fn work(&self) -> anyhow::Result<Option<Work>>;
}

/// A lock service that makes each answer durable.
pub(super) trait Durable: Service {
    fn about(&self) -> About;

    /// What is measured beside an uncontended lock of ours, as often as this or less. The first is the
    /// least that the service can do for an acquire and a release: two changes, each of them durable
    /// before its answer.
    fn beside(&self, acquires: usize) -> Vec<Subject<'_, Times>>;
}

#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    /// As an option has it.
    pub(super) name: &'static str,
    /// The service, and how its clients connect.
    pub(super) title: &'static str,
    /// What [`Service::work`] counts.
    pub(super) command: &'static str,
    /// The goal: how many times the least an acquire, its token and the release may take.
    pub(super) goal_of_least: f64,
}

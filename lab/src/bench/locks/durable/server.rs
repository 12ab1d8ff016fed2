//! What the bench needs of each lock service.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_client::backend::Backend;

use super::super::hold::RoundTrip;

/// Long enough for a hundred clients that begin to wait at once, with slow commits.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A lock service on a private server, and raw clients of it.
#[async_trait]
pub(in super::super) trait Server: RoundTrip {
    /// The name of the service, as an option has it.
    fn name(&self) -> &'static str;

    /// The service, and how its clients connect.
    fn title(&self) -> &'static str;

    /// The URL of the service, as our command takes it.
    fn url(&self) -> String;

    /// Makes a client of our locks.
    fn backend(&self) -> anyhow::Result<Arc<dyn Backend>>;

    /// What the [least](Self::least) is.
    fn least_subject(&self) -> &'static str;

    /// Measures the least that the service can do for an acquire and a release: two changes, each of
    /// them durable before its answer.
    async fn least(&self, count: usize) -> anyhow::Result<Vec<Duration>>;

    /// The goal: how many times the least an acquire, its token and the release may take.
    fn goal_of_least(&self) -> f64;

    /// What [`round_trip`](RoundTrip::round_trip) is.
    fn round_trip_subject(&self) -> &'static str;

    /// The other subjects that are shown beside ours.
    fn others(&self) -> &'static [Other] {
        &[]
    }

    /// Measures one of the others, by its number.
    async fn measure_other(&self, number: usize, count: usize) -> anyhow::Result<Vec<Duration>> {
        unreachable!("there is no subject {number}, measured {count} times")
    }

    /// What [`commands`](Self::commands) counts.
    fn command(&self) -> &'static str {
        "requests of our client"
    }

    /// Returns how many commands the server has carried out for our locks since it started; `None` if
    /// it does not count them.
    async fn commands(&self) -> anyhow::Result<Option<u64>> {
        Ok(None)
    }
}

/// A subject that is shown beside ours.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Other {
    pub(in super::super) subject: &'static str,
    /// It is measured once while ours are measured this often, because it is slow.
    pub(in super::super) once_in: usize,
}

//! Python's package redis, and its `Lock`.

use serde_json::{Value, json};

use super::super::{
    hold::HOLD,
    python::{Package, Python},
};
use crate::bench::{peer::TTL, series::Part, work::Meter};

/// Python's package redis, in its own process.
#[derive(Debug)]
pub(super) struct PythonRedis(Python);

impl PythonRedis {
    pub(super) fn start(url: &str) -> anyhow::Result<Self> {
        Python::start(Package::Redis, url).map(Self)
    }

    pub(super) async fn pings(&mut self, count: usize, meter: &mut Meter) -> anyhow::Result<Part> {
        self.measure(&json!({ "what": "pings", "count": count }), meter).await
    }

    /// Acquires and releases one lock repeatedly.
    pub(super) async fn cycles(&mut self, count: usize, meter: &mut Meter) -> anyhow::Result<Part> {
        let request =
            json!({ "what": "cycles", "count": count, "name": "python", "ttl": TTL.as_secs() });
        self.measure(&request, meter).await
    }

    /// Hands a lock over among threads. The work includes the threads' first and last tries.
    pub(super) async fn handovers(
        &mut self,
        waiters: usize,
        count: usize,
        meter: &mut Meter,
    ) -> anyhow::Result<Part> {
        let request = json!({
            "what": "handovers", "count": count, "name": "python", "ttl": TTL.as_secs(),
            "waiters": waiters, "hold": HOLD.as_secs_f64(),
        });
        let Part { times, work } = self.measure(&request, meter).await?;
        Ok(Part { times, work: work.without("ping") })
    }

    async fn measure(&mut self, request: &Value, meter: &mut Meter) -> anyhow::Result<Part> {
        let before = meter.read().await?;
        let times = self.0.measure(request).await?;
        Ok(Part { times, work: meter.read().await?.since(&before) })
    }
}

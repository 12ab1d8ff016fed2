//! The Python client redis, and its Lock, in a process of its own.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::handover::HOLD;
use crate::bench::{
    peer::TTL,
    samples::Samples,
    work::{Meter, Work},
};
use testbed::process::Process;

/// More than any request here takes.
const PATIENCE: Duration = Duration::from_secs(300);
const INTERPRETER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/python/bin/python");

/// A Python that measures what it is asked for.
#[derive(Debug)]
pub(super) struct Python {
    process: Process,
    _folder: TempDir,
}

impl Python {
    pub(super) fn start(url: &str) -> anyhow::Result<Self> {
        ensure!(
            Path::new(INTERPRETER).exists(),
            "{INTERPRETER} is not here; `make python` makes it"
        );
        let folder = TempDir::with_prefix("fenced-")?;
        let mut command = Command::new(INTERPRETER);
        command.args(["-I", "-c", include_str!("python.py"), url]);
        let process = Process::spawn("python", &command, folder.path())?;
        Ok(Self { process, _folder: folder })
    }

    pub(super) async fn pings(
        &mut self,
        count: usize,
        meter: &mut Meter,
    ) -> anyhow::Result<(Samples, Work)> {
        self.measure(&json!({ "what": "pings", "count": count }), meter).await
    }

    /// Acquires and releases one lock, again and again.
    pub(super) async fn cycles(
        &mut self,
        count: usize,
        meter: &mut Meter,
    ) -> anyhow::Result<(Samples, Work)> {
        let request =
            json!({ "what": "cycles", "count": count, "name": "python", "ttl": TTL.as_secs() });
        self.measure(&request, meter).await
    }

    /// Hands a lock over among threads. The work contains how they come and go.
    pub(super) async fn handovers(
        &mut self,
        waiters: usize,
        count: usize,
        meter: &mut Meter,
    ) -> anyhow::Result<(Samples, Work)> {
        let request = json!({
            "what": "handovers", "count": count, "name": "python", "ttl": TTL.as_secs(),
            "waiters": waiters, "hold": HOLD.as_secs_f64(),
        });
        let (samples, work) = self.measure(&request, meter).await?;
        Ok((samples, work.without("ping")))
    }

    async fn measure(
        &mut self,
        request: &Value,
        meter: &mut Meter,
    ) -> anyhow::Result<(Samples, Work)> {
        let before = meter.read().await?;
        self.process.write_line(&request.to_string())?;
        let answer = self.process.line(PATIENCE).await?;
        let work = meter.read().await?.since(&before);
        let times: Vec<u64> = serde_json::from_str(&answer).context("Python answers with times")?;
        let mut samples = Samples::default();
        samples.extend(times.into_iter().map(Duration::from_nanos));
        Ok((samples, work))
    }
}

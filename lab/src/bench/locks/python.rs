//! Python's package redis, and its `Lock`, in its own process.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::process::Process;

use super::hold::HOLD;
use crate::bench::{peer::TTL, series::Part, work::Meter};

/// Longer than any request here takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
const INTERPRETER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/python/bin/python");

/// A Python process that measures on request.
#[derive(Debug)]
pub(super) struct Python {
    process: Process,
    _folder: TempDir,
}

impl Python {
    pub(super) fn start(url: &str) -> anyhow::Result<Self> {
        ensure!(
            Path::new(INTERPRETER).exists(),
            "{INTERPRETER} does not exist; `make python` creates it"
        );
        let folder = TempDir::with_prefix("fenced-")?;
        let mut command = Command::new(INTERPRETER);
        command.args(["-I", "-c", include_str!("python.py"), url]);
        let process = Process::spawn("python", &command, folder.path())?;
        Ok(Self { process, _folder: folder })
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
        self.process.write_line(&request.to_string())?;
        let answer = self.process.line(ANSWER_TIMEOUT).await?;
        let work = meter.read().await?.since(&before);
        let nanos: Vec<u64> = serde_json::from_str(&answer).context("Python returned no times")?;
        Ok(Part { times: nanos.into_iter().map(Duration::from_nanos).collect(), work })
    }
}

//! Lock clients of Python, in a process of their own.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context, ensure};
use serde_json::Value;
use tempfile::TempDir;
use testbed::process::Process;
use tokio::sync::Mutex;

/// Longer than any request here takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
const INTERPRETER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/python/bin/python");

/// A lock client of Python.
#[derive(Clone, Copy, Debug)]
pub(super) enum Package {
    Redis,
    Kazoo,
}

/// A Python process that measures on request.
#[derive(Debug)]
pub(super) struct Python {
    process: Mutex<Process>,
    _folder: TempDir,
}

impl Python {
    /// Starts a process that uses the server at an address.
    pub(super) fn start(package: Package, address: &str) -> anyhow::Result<Self> {
        ensure!(
            Path::new(INTERPRETER).exists(),
            "{INTERPRETER} does not exist; `make python` creates it"
        );
        let folder = TempDir::with_prefix("fenced-")?;
        let mut command = Command::new(INTERPRETER);
        command.args(["-I", "-c", package.script(), address]);
        let process = Process::spawn("python", &command, folder.path())?;
        Ok(Self { process: Mutex::new(process), _folder: folder })
    }

    /// Sends a request, and returns the times that the process has measured.
    pub(super) async fn measure(&self, request: &Value) -> anyhow::Result<Vec<Duration>> {
        let mut process = self.process.lock().await;
        process.write_line(&request.to_string())?;
        let answer = process.line(ANSWER_TIMEOUT).await?;
        let nanos: Vec<u64> = serde_json::from_str(&answer).context("Python returned no times")?;
        Ok(nanos.into_iter().map(Duration::from_nanos).collect())
    }
}

impl Package {
    fn script(self) -> &'static str {
        match self {
            Self::Redis => {
                concat!(include_str!("python/requests.py"), include_str!("python/redis.py"))
            }
            Self::Kazoo => {
                concat!(include_str!("python/requests.py"), include_str!("python/kazoo.py"))
            }
        }
    }
}

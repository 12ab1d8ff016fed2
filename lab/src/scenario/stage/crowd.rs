//! A crowd of clients in a scenario, in one process.

use std::time::Duration;

use super::process::ClientProcess;
use crate::{client::command::Command, record::Recorder};

pub(crate) struct Crowd {
    process: ClientProcess,
    recorder: Recorder,
}

impl Crowd {
    pub(super) fn new(process: ClientProcess, recorder: Recorder) -> Self {
        Self { process, recorder }
    }

    /// Has every client of the crowd carry out these commands, all clients at once.
    pub(crate) fn send(&mut self, commands: &[Command]) -> anyhow::Result<()> {
        self.process.send(&commands)
    }

    /// Waits until all clients are done, and records what they did in sum.
    pub(crate) async fn wait(&mut self, within: Duration) -> anyhow::Result<()> {
        let report = self.process.report(within).await?;
        self.recorder.record(self.process.actor, report.token, report.kind);
        Ok(())
    }
}

//! The process of a client, or of a crowd of clients.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tempfile::TempDir;
use testbed::process::Process;

use crate::{
    client::{report::Report, setup::Setup},
    programs,
    record::Actor,
};

pub(crate) struct ClientProcess {
    pub(super) actor: Actor,
    pub(super) child: Process,
    // Its stderr is kept here as long as it runs.
    _folder: TempDir,
}

impl ClientProcess {
    pub(super) fn start(actor: Actor, setup: &Setup) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        let mut command = programs::client()?.command();
        command.arg(serde_json::to_string(setup)?);
        let child = Process::spawn(actor.title(), &command, folder.path())?;
        Ok(Self { actor, child, _folder: folder })
    }

    /// Writes a line to its stdin.
    pub(super) fn send(&mut self, line: &impl Serialize) -> anyhow::Result<()> {
        self.child.write_line(&serde_json::to_string(line)?)
    }

    /// Waits for its next report.
    pub(super) async fn report(&mut self, within: Duration) -> anyhow::Result<Report> {
        let line = self.child.line(within).await?;
        serde_json::from_str(&line).with_context(|| format!("not a known event: {line}"))
    }
}

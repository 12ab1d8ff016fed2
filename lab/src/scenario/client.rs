//! A client in a scenario: `lock-client put`, driven step by step.

use std::{process::Command, time::Duration};

use anyhow::{Context, ensure};
use fence::Token;
use serde::Deserialize;
use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::{
    process::Process,
    record::{Actor, Recorder, World},
    servers::built,
};

const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// What a client is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Put<'a> {
    pub(super) resource: &'a str,
    pub(super) value: &'a str,
    pub(super) ttl: &'a str,
    pub(super) redis: &'a str,
    pub(super) storage: &'a str,
}

/// A client that waits after each of its steps.
#[derive(Debug)]
pub(super) struct Client {
    process: Process,
    world: World,
    actor: Actor,
    // Its stderr is kept here as long as it runs.
    _folder: TempDir,
}

/// An event as `lock-client` prints it.
#[derive(Deserialize)]
struct Printed {
    event: String,
    token: Option<Token>,
    #[serde(flatten)]
    details: Map<String, Value>,
}

impl Client {
    pub(super) fn start(world: World, actor: Actor, put: Put<'_>) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        let mut command = Command::new(built("lock-client")?);
        command.args(["put", put.resource, put.value, "--ttl", put.ttl, "--step"]);
        command.args(["--redis", put.redis, "--storage", put.storage]);
        let process = Process::spawn("lock-client", &command, folder.path())?;
        Ok(Self { process, world, actor, _folder: folder })
    }

    /// Waits for the client's next step, which must be this one, and notes it. Returns its token.
    pub(super) async fn expect(
        &mut self,
        step: &str,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Option<Token>> {
        let (taken, token) = self.step(recorder).await?;
        ensure!(taken == step, "the client was to reach '{step}', but reached '{taken}'");
        Ok(token)
    }

    /// Waits for the client's next step, whichever it is, and notes it with what it means for the
    /// storage.
    pub(super) async fn step(
        &mut self,
        recorder: &mut Recorder,
    ) -> anyhow::Result<(String, Option<Token>)> {
        let line = self.process.line(STEP_TIMEOUT).await?;
        let Printed { event, token, details } =
            serde_json::from_str(&line).with_context(|| format!("not an event: {line:?}"))?;
        let at_the_storage = match event.as_str() {
            "read" => Some("accepted-claim"),
            "written" if recorder.is_stale(self.world, token) => Some("accepted-stale-write"),
            "written" => Some("accepted-write"),
            "refused" => Some("refused"),
            _ => None,
        };
        recorder.note_with(self.world, self.actor, &event, token, details.clone());
        if let Some(decision) = at_the_storage {
            recorder.note_with(self.world, Actor::Storage, decision, token, details);
        }
        Ok((event, token))
    }

    /// Lets the client take its next step.
    pub(super) fn go_on(&mut self) -> anyhow::Result<()> {
        self.process.write_line("")
    }

    /// Stops the client where it is.
    pub(super) async fn pause(&mut self, recorder: &mut Recorder) -> anyhow::Result<()> {
        self.process.pause().await?;
        recorder.note(self.world, self.actor, "paused", None);
        Ok(())
    }

    /// Lets a stopped client wake up.
    pub(super) fn resume(&mut self, recorder: &mut Recorder) -> anyhow::Result<()> {
        recorder.note(self.world, self.actor, "resumed", None);
        self.process.resume()
    }

    /// Waits until the client ends, and returns its exit code.
    pub(super) async fn exit_code(&mut self) -> anyhow::Result<Option<i32>> {
        Ok(self.process.exit(STEP_TIMEOUT).await?.code())
    }
}

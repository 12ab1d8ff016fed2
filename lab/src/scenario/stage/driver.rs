//! A client in a scenario, as a process of its own, driven step by step.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use fence::Token;
use serde::Deserialize;
use serde_json::{Map, Value};
use tempfile::TempDir;

use super::{Work, workplace::holders};
use crate::{
    client::REFUSED,
    record::{Actor, Recorder},
};
use testbed::process::Process;

const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// The last step of a client that waited for a lock in vain.
pub(crate) const GAVE_UP: &str = "gave-up";
/// The detail of a write that says how many writes of others it overwrites that its client has not seen.
pub(crate) const OVERWRITES_UNSEEN: &str = "overwrites_unseen";
/// The last steps of a client that had a lock.
const GIVEN_BACK: [&str; 3] = ["deleted", "released", "lease-lost"];

/// A client that waits after each of its steps.
#[derive(Debug)]
pub(crate) struct Client {
    process: Process,
    actor: Actor,
    /// What ends a client's having the lock, where it is told who has it beside another.
    ends: Option<&'static [&'static str]>,
    // Its stderr is kept here as long as it runs.
    _folder: TempDir,
}

/// An event as the clients print it.
#[derive(Deserialize)]
struct Printed {
    event: String,
    token: Option<Token>,
    #[serde(flatten)]
    details: Map<String, Value>,
}

impl Client {
    pub(crate) fn start(actor: Actor, work: Work<'_>) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        let process = Process::spawn(actor.title(), &work.command(actor)?, folder.path())?;
        Ok(Self { process, actor, ends: None, _folder: folder })
    }

    /// Has it told who has the lock beside another, where these end a client's having it.
    pub(crate) fn among_holders(self, ends: &'static [&'static str]) -> Self {
        Self { ends: Some(ends), ..self }
    }

    /// Lets the client go on to its next step, which must be this one.
    pub(crate) async fn take(&mut self, step: &str, recorder: &mut Recorder) -> anyhow::Result<()> {
        self.go_on()?;
        self.expect(step, recorder).await?;
        Ok(())
    }

    /// Waits for the client's next step, which must be this one, and notes it. Returns its token.
    pub(crate) async fn expect(
        &mut self,
        step: &str,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Option<Token>> {
        self.expect_within(step, STEP_TIMEOUT, recorder).await
    }

    /// The same, with a time of one's own.
    pub(crate) async fn expect_within(
        &mut self,
        step: &str,
        within: Duration,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Option<Token>> {
        let (taken, token) = self.step(within, recorder).await?;
        ensure!(taken == step, "the client was to reach '{step}', but reached '{taken}'");
        Ok(token)
    }

    /// Waits until the client has written or was refused, and notes it. Returns the exit code that it
    /// is to end with.
    pub(crate) async fn written_or_refused(
        &mut self,
        recorder: &mut Recorder,
    ) -> anyhow::Result<u8> {
        match self.step(STEP_TIMEOUT, recorder).await?.0.as_str() {
            "written" => Ok(0),
            "refused" => Ok(REFUSED),
            other => bail!("the client was to write, but reached '{other}'"),
        }
    }

    /// Waits for the client's next step, whichever it is, and notes it.
    pub(crate) async fn next(&mut self, recorder: &mut Recorder) -> anyhow::Result<String> {
        Ok(self.step(STEP_TIMEOUT, recorder).await?.0)
    }

    /// Waits until the client has given its lock back, or found that it was not its own, and has
    /// ended.
    pub(crate) async fn gives_back(&mut self, recorder: &mut Recorder) -> anyhow::Result<()> {
        let event = self.next(recorder).await?;
        ensure!(GIVEN_BACK.contains(&&*event), "the client was to end, but reached '{event}'");
        self.ends_with(0).await
    }

    /// Lets the client take its further steps up to this one.
    pub(crate) async fn go_on_to(
        &mut self,
        step: &str,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        loop {
            self.go_on()?;
            let taken = self.next(recorder).await?;
            if taken == step {
                return Ok(());
            }
            ensure!(!GIVEN_BACK.contains(&&*taken), "the client ended before '{step}'");
        }
    }

    /// Lets the client take its further steps, until it has given its lock back and ended.
    pub(crate) async fn finish(&mut self, recorder: &mut Recorder) -> anyhow::Result<()> {
        self.finish_with(0, recorder).await
    }

    /// The same, where it must end with this exit code.
    pub(crate) async fn finish_with(
        &mut self,
        exit_code: u8,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        loop {
            self.go_on()?;
            if GIVEN_BACK.contains(&&*self.next(recorder).await?) {
                return self.ends_with(exit_code).await;
            }
        }
    }

    /// Waits for the client's next step, whichever it is, and notes it with what it means for the
    /// storage.
    async fn step(
        &mut self,
        within: Duration,
        recorder: &mut Recorder,
    ) -> anyhow::Result<(String, Option<Token>)> {
        let line = self.process.line(within).await?;
        let Printed { event, token, details } =
            serde_json::from_str(&line).with_context(|| format!("not an event: {line:?}"))?;
        let at_the_storage = match event.as_str() {
            "read" if details.get("claimed") == Some(&Value::Bool(false)) => Some("answered"),
            "read" if recorder.is_anothers(self.actor, token) => Some("accepted-anothers-token"),
            "read" => Some("accepted-claim"),
            "written" if recorder.is_stale(token) => Some("accepted-stale-write"),
            "written" if recorder.is_anothers(self.actor, token) => Some("accepted-anothers-token"),
            "written" => Some("accepted-write"),
            "refused" | "claim-refused" => Some("refused"),
            _ => None,
        };
        let mut own = details.clone();
        match event.as_str() {
            "written" => {
                let unseen = recorder.unseen_by(self.actor);
                if unseen > 0 {
                    own.insert(OVERWRITES_UNSEEN.to_owned(), unseen.into());
                }
            }
            "acquired" => {
                let beside = self.ends.map(|ends| holders(recorder.events(), ends));
                if let Some(beside) = beside.filter(|beside| !beside.is_empty()) {
                    own.insert("beside".to_owned(), beside.join(" and ").into());
                }
            }
            _ => {}
        }
        recorder.note_with(self.actor, &event, token, own);
        if let Some(decision) = at_the_storage {
            recorder.note_with(Actor::Storage, decision, token, details);
        }
        Ok((event, token))
    }

    /// Waits until the client ends without the lock, with this exit code, and says why. That is noted as
    /// this event.
    pub(crate) async fn goes_away(
        &mut self,
        exit_code: u8,
        why: &str,
        event: &str,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        if let Ok(step) = self.process.line(STEP_TIMEOUT).await {
            bail!("the client was to go away, but took a step: {step}");
        }
        self.ends_with(exit_code).await?;
        let said = self.process.stderr()?;
        ensure!(said.contains(why), "the client was to say '{why}', but said {said:?}");
        recorder.note(self.actor, event, None);
        Ok(())
    }

    /// Lets the client take its next step.
    pub(crate) fn go_on(&mut self) -> anyhow::Result<()> {
        self.process.write_line("")
    }

    /// Stops the client where it is.
    pub(crate) async fn pause(&mut self, recorder: &mut Recorder) -> anyhow::Result<()> {
        self.process.pause().await?;
        recorder.note(self.actor, "paused", None);
        Ok(())
    }

    /// Lets a stopped client wake up.
    pub(crate) fn resume(&mut self, recorder: &mut Recorder) -> anyhow::Result<()> {
        recorder.note(self.actor, "resumed", None);
        self.process.resume()
    }

    /// Kills the client (SIGKILL).
    pub(crate) fn kill(&mut self, recorder: &mut Recorder) -> anyhow::Result<()> {
        self.process.kill()?;
        recorder.note(self.actor, "killed", None);
        Ok(())
    }

    /// Waits until the client ends, which it must with this exit code.
    pub(crate) async fn ends_with(&mut self, exit_code: u8) -> anyhow::Result<()> {
        let status = self.process.exit(STEP_TIMEOUT).await?;
        ensure!(
            status.code() == Some(exit_code.into()),
            self.process.account(&format!("was to end with exit code {exit_code}, but: {status}"))
        );
        Ok(())
    }
}

//! The lines of the audit log for the actions of operators on the command line.

use std::path::Path;

use anyhow::Context;
use fence::Token;
use serde::Serialize;

use crate::{
    audit::{file::AuditFile, time_now},
    causes::with_causes,
};

/// What an operator does by a command.
#[derive(Debug, Serialize)]
pub(super) struct Action {
    pub(super) command: &'static str,
    /// The resource, the prefix, the file or the identity that it is about; `None` if it is about the whole
    /// database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<Token>,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    event: &'static str,
    user: &'a str,
    #[serde(flatten)]
    action: &'a Action,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs a command between two lines in the audit log, which is a file, or else the log on stderr. If the
/// first line can't be written into the file, the command is not run: an operator can mend that, and no
/// client waits.
pub(super) async fn audited(
    path: Option<&Path>,
    action: &Action,
    run: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let user = whoami::username().unwrap_or_else(|_| "unknown".to_owned());
    let mut file = path.map(AuditFile::open).transpose()?;
    let mut write = |outcome, error| {
        let line = Line { time: time_now(), event: "command", user: &user, action, outcome, error };
        match &mut file {
            Some(file) => file.write_line(&serde_json::to_string(&line).expect("it is JSON")),
            None => {
                line.log();
                Ok(())
            }
        }
    };
    write("begun", None).context("nothing was changed")?;
    let ended = run.await;
    let written = match &ended {
        Ok(()) => write("done", None),
        Err(error) => write("failed", Some(with_causes(error.as_ref()))),
    };
    ended?;
    written.context("the command was done, but its end is not in the audit log")
}

impl Line<'_> {
    /// Writes the line into the log on stderr.
    fn log(&self) {
        let Self { time: _, event, user, action, outcome, error } = self;
        let Action { command, target, token } = action;
        tracing::info!(
            target: "audit",
            event,
            user,
            command,
            // The log in JSON has a member `target` of its own.
            object = target,
            token = token.map(Token::as_u64),
            outcome,
            error,
        );
    }
}

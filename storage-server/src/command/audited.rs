//! The lines of the audit log for the commands that change fences or identities.

use std::path::Path;

use anyhow::Context;
use fence::Token;
use serde::Serialize;

use crate::{
    audit::{file::AuditFile, time_now},
    causes::with_causes,
};

/// What a command changes.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    pub(super) command: &'static str,
    /// The resource, the prefix, the file or the identity that is changed; `None` if all resources are.
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
    change: &'a Change,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs a command between two lines in the audit log. If the first one can't be written, the command
/// is not run: an operator can mend that, and no client waits.
pub(super) async fn audited(
    path: &Path,
    change: &Change,
    run: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let user = whoami::username().unwrap_or_else(|_| "unknown".to_owned());
    let mut file = AuditFile::open(path)?;
    let mut write = |outcome, error| {
        let line = Line { time: time_now(), event: "command", user: &user, change, outcome, error };
        file.write_line(&serde_json::to_string(&line).expect("it is JSON"))
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

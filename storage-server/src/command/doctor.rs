//! `doctor`: whether the database can lose an acknowledged fence.

use clap::Args;
use doctor::{NOT_EXAMINED, Verdict, postgres::PatroniUrl};

use super::{print, with_causes};
use crate::store::doctor::examine;

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// The REST address of a Patroni that may promote a standby, such as http://HOST:8008.
    #[arg(long, value_name = "URL")]
    patroni: Option<PatroniUrl>,

    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// The database is unfit, or could not be examined.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(super) struct NotFit {
    /// The exit code of the process.
    pub(super) code: u8,
    reason: String,
}

impl Doctor {
    /// Prints what was found.
    ///
    /// # Errors
    /// [`NotFit`] if a fence can be lost, or if that could not be seen.
    pub(super) async fn run(self, database_url: &str) -> anyhow::Result<()> {
        let examined = examine(database_url, self.patroni.as_ref()).await;
        let report =
            examined.map_err(|error| NotFit { code: NOT_EXAMINED, reason: with_causes(&error) })?;
        if self.json {
            print(serde_json::to_string_pretty(&report)?);
        } else {
            print(report.to_string().trim_end());
        }
        let reason = match report.verdict() {
            Verdict::Ok | Verdict::Warning => return Ok(()),
            Verdict::Unseen => "doctor could not see whether the database can lose a fence",
            Verdict::UnfitForFence => "the database can lose a fence",
            Verdict::Unfit => "no server can use the database",
        };
        Err(NotFit { code: report.verdict().exit_code(), reason: reason.to_owned() }.into())
    }
}

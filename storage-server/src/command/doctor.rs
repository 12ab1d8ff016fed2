//! `doctor`: whether the database can lose an acknowledged fence.

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use super::print;
use crate::store::doctor::{Examination, Finding, PatroniUrl, Verdict, examine};

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// The REST address of a Patroni that may promote a standby, such as http://HOST:8008.
    #[arg(long, value_name = "URL")]
    patroni: Option<PatroniUrl>,

    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    is_safe: bool,
    #[serde(flatten)]
    examination: &'a Examination,
}

impl Doctor {
    /// Prints what was found. It is an error if a fence can be lost, or if that could not be seen.
    pub(super) async fn run(self, database_url: &str) -> anyhow::Result<()> {
        let examination = examine(database_url, self.patroni.as_ref()).await?;
        let is_safe = examination.is_safe();
        if self.json {
            let document = Document { is_safe, examination: &examination };
            print(serde_json::to_string_pretty(&document)?);
        } else {
            print_table(&examination);
        }
        ensure!(is_safe, "the database can lose a fence, or doctor could not see whether it can");
        Ok(())
    }
}

fn print_table(Examination { database, findings, unseen }: &Examination) {
    print(database);
    for Finding { check, verdict, found, why } in findings {
        let verdict = match verdict {
            Verdict::Ok => "ok",
            Verdict::Wrong => "WRONG",
            Verdict::Unknown => "UNKNOWN",
        };
        print(format_args!("{verdict:8}{check:20}{found}"));
        if verdict != "ok" {
            print(format_args!("{:8}{why}", ""));
        }
    }
    print(format_args!("not seen: {unseen}"));
}

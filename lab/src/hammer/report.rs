//! The report of a hammer.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

use super::{database::Variant, history::Violations};
use crate::output::Table;

/// The figures of one isolation level.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Figures {
    pub(super) isolation: &'static str,
    pub(super) writes: usize,
    pub(super) rejected: usize,
    pub(super) tried_again: usize,
    /// Writes without an answer that says whether they were committed.
    pub(super) unknown: usize,
    #[serde(flatten)]
    pub(super) violations: Violations,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) variant: Option<Variant>,
    pub(super) clients: u16,
    pub(super) seconds: u64,
    pub(super) figures: Vec<Figures>,
    /// Whether the fence held, or whether the wrong way was caught.
    pub(super) holds: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variant, clients, seconds, figures, holds } = self;
        write!(f, "{clients} clients, {seconds} s at each isolation level, ")?;
        match variant {
            None => writeln!(f, "with the fence\n")?,
            Some(variant) => {
                let name = variant.to_possible_value().expect("no variant is skipped");
                writeln!(f, "the wrong way '{}'\n", name.get_name())?;
            }
        }
        let header = [
            "isolation",
            "writes",
            "rejected",
            "tried again",
            "unknown",
            "stale writes",
            "overtaken reads",
            "forked writes",
            "lost resources",
            "lost increments",
        ];
        let rows = figures.iter().map(|figures| {
            let Figures { isolation, writes, rejected, tried_again, unknown, violations } = figures;
            let Violations {
                stale_writes,
                overtaken_reads,
                forked_writes,
                lost_resources,
                lost_increments,
            } = violations;
            [
                (*isolation).to_owned(),
                writes.to_string(),
                rejected.to_string(),
                tried_again.to_string(),
                unknown.to_string(),
                stale_writes.to_string(),
                overtaken_reads.to_string(),
                forked_writes.to_string(),
                lost_resources.to_string(),
                lost_increments.to_string(),
            ]
        });
        let verdict = match (variant, holds) {
            (None, true) => "The fence held.",
            (None, false) => "THE FENCE DID NOT HOLD.",
            (Some(_), true) => "The wrong way was caught.",
            (Some(_), false) => "The wrong way was NOT caught in this run.",
        };
        writeln!(f, "{}\n{verdict}", Table::new(header, rows))
    }
}

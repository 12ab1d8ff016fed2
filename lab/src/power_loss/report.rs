//! The report of the power losses.

use std::fmt;

use serde::Serialize;

use super::{CLIENTS, load::Counts, setting::Setting};
use crate::output::Table;

/// The figures of one setting.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    setting: Setting,
    #[serde(flatten)]
    counts: Counts,
}

impl Figures {
    pub(super) fn new(setting: Setting, counts: Counts) -> Self {
        Self { setting, counts }
    }

    /// Whether the setting did what is said of it.
    fn holds(&self) -> bool {
        let Counts { lost, lowered_fences, .. } = self.counts;
        if self.setting.is_ours() { lost + lowered_fences == 0 } else { lost > 0 }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    losses: u32,
    figures: Vec<Figures>,
    /// Whether no write was lost with the server's settings, and some with each careless one.
    pub(super) holds: bool,
}

impl Report {
    pub(super) fn new(losses: u32, figures: Vec<Figures>) -> Self {
        let holds = figures.iter().all(Figures::holds);
        Self { losses, figures, holds }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { losses, figures, holds } = self;
        writeln!(
            f,
            "The power fails {losses} times while {CLIENTS} clients write. All processes are \
             killed, and writes that\nwere not synced are lost. \"After a crash\": a server was killed \
             before it synced its writes, and the\npower fails after another one has answered repeated \
             claims.\n"
        )?;
        let header = ["acknowledged writes", "all", "survived", "lost", "older tokens accepted"];
        let rows = figures.iter().map(|Figures { setting, counts }| {
            let Counts { acknowledged, lost, lowered_fences } = *counts;
            [
                setting.name().to_owned(),
                acknowledged.to_string(),
                (acknowledged - lost).to_string(),
                lost.to_string(),
                lowered_fences.to_string(),
            ]
        });
        let verdict = if *holds {
            "With the server's settings, an acknowledged write survives a power loss, and its fence \
             stays. With\nthe others, the storage forgets acknowledged writes, and accepts tokens \
             that are older."
        } else {
            "THIS RUN DID NOT SHOW IT: with the server's settings nothing may be lost, and with each \
             of the\nothers something must be."
        };
        writeln!(f, "{}\n{verdict}", Table::new(header, rows))
    }
}

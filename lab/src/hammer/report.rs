//! What a hammer prints.

use clap::ValueEnum;
use serde::Serialize;

use super::{Variant, history::Violations};

/// What the clients came to at one isolation level.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Figures {
    pub(super) isolation: &'static str,
    pub(super) writes: usize,
    pub(super) refused: usize,
    pub(super) tried_again: usize,
    #[serde(flatten)]
    pub(super) violations: Violations,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) variant: Option<Variant>,
    pub(super) clients: u16,
    pub(super) seconds: u64,
    pub(super) figures: Vec<Figures>,
    /// Whether the fence held; or, of a wrong way, whether it was caught.
    pub(super) holds: bool,
}

impl Report {
    pub(super) fn table(&self) -> String {
        let way = match self.variant {
            None => "with the fence".to_owned(),
            Some(variant) => {
                let name = variant.to_possible_value().expect("none is skipped");
                format!("the wrong way '{}'", name.get_name())
            }
        };
        let mut text = format!(
            "{} clients, {} s at each isolation level, {way}\n\n\
             {:<18} {:>8} {:>8} {:>11} {:>13} {:>16} {:>16}\n",
            self.clients,
            self.seconds,
            "isolation",
            "writes",
            "refused",
            "tried again",
            "stale writes",
            "overtaken reads",
            "lost increments"
        );
        for Figures { isolation, writes, refused, tried_again, violations } in &self.figures {
            let Violations { stale_writes, overtaken_reads, lost_increments } = violations;
            text += &format!(
                "{isolation:<18} {writes:>8} {refused:>8} {tried_again:>11} {stale_writes:>13} \
                 {overtaken_reads:>16} {lost_increments:>16}\n"
            );
        }
        text += match (self.variant, self.holds) {
            (None, true) => "\nThe fence held.\n",
            (None, false) => "\nTHE FENCE DID NOT HOLD.\n",
            (Some(_), true) => "\nThe wrong way was caught.\n",
            (Some(_), false) => "\nThe wrong way was NOT caught in this run.\n",
        };
        text
    }
}

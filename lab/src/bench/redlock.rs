//! `lab bench redlock`.

mod cluster;
mod hung;
mod lines;
mod report;

use std::process::ExitCode;

use clap::Args;

use self::{
    lines::{Clusters, Lines},
    report::Report,
};
use super::at_least_one;

#[derive(Args, Debug)]
pub struct RedlockBench {
    /// How often to acquire and release locks of each kind
    #[arg(long, default_value_t = 5_000, value_parser = at_least_one, value_name = "COUNT")]
    acquires: usize,
    /// How often with rslock while a node hangs, which it waits for
    #[arg(long, default_value_t = 5, value_parser = at_least_one, value_name = "COUNT")]
    waiting_acquires: usize,
    /// In how many rounds to measure, one of each after the other, as a machine is now faster and now
    /// slower
    #[arg(long, default_value_t = 5, value_parser = at_least_one, value_name = "COUNT")]
    rounds: usize,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl RedlockBench {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut clusters = Clusters::start().await?;
        let (acquires, waiting) = (self.acquires, self.waiting_acquires);
        let each = (acquires.div_ceil(self.rounds), waiting.div_ceil(self.rounds));
        // Connections are made, and scripts are loaded, before anything counts.
        Lines::new().measure_all_up(1, &mut clusters).await?;
        let mut lines = Lines::new();
        for round in 1..=self.rounds {
            lines.measure(round, each, &mut clusters).await?;
        }
        let report = Report::of(self.rounds, &lines);
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print!("{}", report.table());
        }
        Ok(ExitCode::SUCCESS)
    }
}

//! `lab bench redlock`: locks on a majority of independent Redis nodes.

mod cluster;
mod hung;
mod measurements;
mod report;

use std::num::NonZeroUsize;

use clap::Args;

use self::{
    cluster::Cluster,
    measurements::{Counts, Measurements},
    report::Report,
};
use crate::output::Output;

#[derive(Args, Debug)]
pub struct RedlockBench {
    /// How often to acquire and release each kind of lock
    #[arg(long, default_value = "5000", value_name = "COUNT")]
    acquires: NonZeroUsize,
    /// How often to do so with rslock while a node hangs: it waits for that node
    #[arg(long, default_value = "5", value_name = "COUNT")]
    waiting_acquires: NonZeroUsize,
    /// How many rounds to split the measurements into: the speed of a machine changes over time
    #[arg(long, default_value = "5", value_name = "COUNT")]
    rounds: NonZeroUsize,
    #[command(flatten)]
    output: Output,
}

impl RedlockBench {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let mut clusters =
            [Cluster::start(1).await?, Cluster::start(3).await?, Cluster::start(5).await?];
        // The first use opens connections and loads scripts, and is not counted.
        Measurements::new().measure_all_up(1, &mut clusters).await?;
        let mut measurements = Measurements::new();
        let per_round = |count: NonZeroUsize| count.get().div_ceil(self.rounds.get());
        let counts = Counts {
            acquires: per_round(self.acquires),
            waiting_acquires: per_round(self.waiting_acquires),
        };
        for round in 1..=self.rounds.get() {
            measurements.add_round(round, counts, &mut clusters).await?;
        }
        self.output.print(&Report::new(self.rounds.get(), &measurements))
    }
}

//! `lab bench locks`.

mod crowd;
mod handover;
mod lines;
mod peers;
mod python;
mod report;
mod uncontended;

use std::{process::ExitCode, time::Duration};

use clap::Args;

use self::{
    crowd::Crowd,
    lines::{Counts, Lines},
    peers::Peers,
    report::Report,
};
use super::{at_least_one, work::Meter};
use testbed::Redis;

pub use self::crowd::HoldLeases;

#[derive(Args, Debug)]
pub struct LocksBench {
    /// How often to acquire and release locks of each kind that nobody else wants
    #[arg(long, default_value_t = 5_000, value_parser = at_least_one, value_name = "COUNT")]
    acquires: usize,
    /// How often to hand over locks of each kind whose waiters are woken
    #[arg(long, default_value_t = 500, value_parser = at_least_one, value_name = "COUNT")]
    handovers: usize,
    /// How often to hand over locks of each kind whose waiters ask again and again
    #[arg(long, default_value_t = 100, value_parser = at_least_one, value_name = "COUNT")]
    polled_handovers: usize,
    /// How many leases one process is to hold at once
    #[arg(long, default_value_t = 10_000, value_parser = at_least_one, value_name = "COUNT")]
    leases: usize,
    /// For how long; their ttl is two fifths of it
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    seconds: u64,
    /// In how many rounds to measure, one of each after the other, as a machine is now faster and now
    /// slower
    #[arg(long, default_value_t = 5, value_parser = at_least_one, value_name = "COUNT")]
    rounds: usize,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl LocksBench {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let redis = Redis::start_on_tcp(&[]).await?;
        let mut meter = Meter::connect(&redis).await?;
        let lines = self.lines(&redis, &mut meter).await?;
        let held_for = Duration::from_secs(self.seconds);
        let crowd = Crowd::measure(&redis, self.leases, held_for, &mut meter).await?;
        let report = Report::of(self.rounds, &lines, crowd);
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print!("{}", report.table());
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn lines(&self, redis: &Redis, meter: &mut Meter) -> anyhow::Result<Lines> {
        let mut peers = Peers::of(redis).await?;
        // Connections are made, and scripts are loaded, before anything counts.
        let once = Counts { acquires: 1, handovers: 1, polled_handovers: 1 };
        Lines::new().measure(0, once, &mut peers, meter).await?;
        let mut lines = Lines::new();
        let each = Counts {
            acquires: self.acquires.div_ceil(self.rounds),
            handovers: self.handovers.div_ceil(self.rounds),
            polled_handovers: self.polled_handovers.div_ceil(self.rounds),
        };
        for round in 1..=self.rounds {
            lines.measure(round, each, &mut peers, meter).await?;
        }
        Ok(lines)
    }
}

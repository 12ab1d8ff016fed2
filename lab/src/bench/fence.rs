//! `lab bench fence`: the cost of the fence inside PostgreSQL and MariaDB.

mod bloat;
mod bulk;
mod figure;
mod mariadb;
mod postgres;
mod rates;
mod report;
mod workload;

use std::num::NonZeroU32;

use clap::Args;

use self::{
    bloat::Bloat,
    report::{Measured, Report},
};
use crate::output::Output;

const CLIENTS: u32 = 16;
/// What is compared is measured once in each round, because the speed of a machine changes over
/// time.
const ROUNDS: u32 = 5;
/// Makes every commit take 2 ms or longer, as on many disks.
const SLOW_COMMITS: [&str; 2] = ["commit_delay=2000", "commit_siblings=0"];

#[derive(Args, Debug)]
pub struct FenceBench {
    /// How long to measure each rate
    #[arg(long, default_value = "10", value_name = "SECONDS")]
    seconds: NonZeroU32,
    #[command(flatten)]
    output: Output,
}

impl FenceBench {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let seconds = self.seconds.get();
        let slow = {
            let database = postgres::start(&SLOW_COMMITS).await?;
            postgres::measure_rates(&database, seconds).await?
        };
        let (fast, postgres_bulk, bloat) = {
            let database = postgres::start(&[]).await?;
            (
                postgres::measure_rates(&database, seconds).await?,
                postgres::measure_bulk(&database).await?,
                Bloat::measure(&database).await?,
            )
        };
        let (mariadb, mariadb_bulk) = {
            let database = mariadb::start().await?;
            (
                mariadb::measure_rates(&database, seconds).await?,
                mariadb::measure_bulk(&database).await?,
            )
        };
        let measured = Measured { fast, slow, postgres_bulk, bloat, mariadb, mariadb_bulk };
        self.output.print(&Report::new(CLIENTS, seconds, measured))
    }
}

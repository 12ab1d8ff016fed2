//! `lab bench fence`: the cost of the fence inside PostgreSQL.

mod report;
mod workload;

use std::num::NonZeroU32;

use clap::Args;
use fence::postgres;
use sqlx::{Connection, PgConnection};
use testbed::Postgres;

use self::{
    report::{Bloat, Report},
    workload::{Rates, TABLES, Workload},
};
use super::load::{Length, RESOURCES, WARM_UP_SECONDS, pgbench, psql};
use crate::output::Output;

const CLIENTS: u32 = 16;
/// Every workload is measured once in each round, because the speed of a machine changes over time.
const ROUNDS: u32 = 5;
/// Makes every commit take 2 ms or longer, as on many disks.
const SLOW_COMMITS: [&str; 2] = ["commit_delay=2000", "commit_siblings=0"];
const BLOAT_WRITES: u32 = 1_000_000;
const BLOAT_RESOURCES: u32 = 100;

#[derive(Args, Debug)]
pub struct FenceBench {
    /// How long to measure each figure
    #[arg(long, default_value = "10", value_name = "SECONDS")]
    seconds: NonZeroU32,
    #[command(flatten)]
    output: Output,
}

impl FenceBench {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let slow = {
            let database = start_database(&SLOW_COMMITS).await?;
            self.measure(&database)?
        };
        let database = start_database(&[]).await?;
        let fast = self.measure(&database)?;
        let pages = pages_after_many_writes(&database).await?;
        let bloat = Bloat::new(BLOAT_WRITES, BLOAT_RESOURCES, pages);
        self.output.print(&Report::new(CLIENTS, self.seconds.get(), fast, slow, bloat))
    }

    fn measure(&self, database: &Postgres) -> anyhow::Result<Rates> {
        let run = |workload: Workload, seconds| {
            pgbench(database, &workload.script(RESOURCES), CLIENTS, Length::Seconds(seconds))
        };
        for workload in Workload::ALL {
            run(workload, WARM_UP_SECONDS)?;
        }
        let mut rates = Rates::default();
        for _ in 0..ROUNDS {
            for workload in Workload::ALL {
                let rate = run(workload, self.seconds.get().div_ceil(ROUNDS))?;
                *rates.get_mut(workload) += rate / f64::from(ROUNDS);
            }
        }
        Ok(rates)
    }
}

async fn start_database(settings: &[&str]) -> anyhow::Result<Postgres> {
    let database = Postgres::start_with(settings).await?;
    let mut connection = PgConnection::connect(&database.url()).await?;
    postgres::install(&mut connection).await?;
    psql(&database, TABLES)?;
    sqlx::query("insert into second select 'bench/' || n, 1 from generate_series(0, $1) as n")
        .bind(i64::from(RESOURCES) - 1)
        .execute(&mut connection)
        .await?;
    Ok(database)
}

/// Returns the size of the fence table after many writes on few resources.
async fn pages_after_many_writes(database: &Postgres) -> anyhow::Result<u32> {
    let mut connection = PgConnection::connect(&database.url()).await?;
    sqlx::raw_sql("set fence.remove = 'on'; truncate fence.fence").execute(&mut connection).await?;
    let each = Length::Transactions(BLOAT_WRITES / CLIENTS);
    pgbench(database, &Workload::ClaimAndUpsert.script(BLOAT_RESOURCES), CLIENTS, each)?;
    let pages = "select pg_relation_size('fence.fence') / current_setting('block_size')::bigint";
    let pages: i64 = sqlx::query_scalar(pages).fetch_one(&mut connection).await?;
    Ok(pages.try_into()?)
}

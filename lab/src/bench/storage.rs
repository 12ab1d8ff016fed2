//! `lab bench storage`.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::{
    load::{CONNECTIONS, Length, Load, RESOURCES, WARM_UP_SECONDS, pgbench, psql, wrk},
    nothing::ServerOfNothing,
    target::Target,
};
use crate::programs::built;
use testbed::{Postgres, StorageServer};

/// At least so much of the floor of HTTP are the fenced writes on SQLite meant to be.
const SQLITE_OF_FLOOR: f64 = 0.45;
/// At least so much of pgbench are the fenced writes on PostgreSQL meant to be.
const POSTGRES_OF_PGBENCH: f64 = 1.2;
/// At least so much of the writes spread over many resources are those on one meant to be.
const HOT_OF_SPREAD: f64 = 0.1;

#[derive(Args, Debug)]
pub struct StorageBench {
    /// How long to measure each figure
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..), value_name = "SECONDS")]
    seconds: u32,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// What was measured of one subject.
#[derive(Debug, Serialize)]
struct Figure {
    subject: &'static str,
    writes_per_second: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    of_floor: f64,
    of_pgbench: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    connections: u32,
    seconds: u32,
    figures: Vec<Figure>,
    targets: Vec<Target>,
}

impl StorageBench {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let floor = {
            let nothing = ServerOfNothing::start().await?;
            wrk(&nothing.url, RESOURCES, self.seconds)?
        };
        let (sqlite, sqlite_hot) = {
            let server = StorageServer::start(&built("storage-server")?, &[]).await?;
            (wrk(server.url(), RESOURCES, self.seconds)?, wrk(server.url(), 1, self.seconds)?)
        };
        let database = Postgres::start().await?;
        let pgbench = unfenced_upserts(&database, self.seconds)?;
        let (postgres, postgres_hot) = {
            let server =
                StorageServer::start_on(&built("storage-server")?, &database.url(), &[]).await?;
            (wrk(server.url(), RESOURCES, self.seconds)?, wrk(server.url(), 1, self.seconds)?)
        };

        let figure = |subject, load: Load| Figure {
            subject,
            writes_per_second: load.per_second,
            p50_ms: load.p50_ms,
            p99_ms: load.p99_ms,
            of_floor: load.per_second / floor.per_second,
            of_pgbench: load.per_second / pgbench.per_second,
        };
        let target = |ratio, at_least, part: Load, whole: Load| {
            Target::at_least(ratio, at_least, part.per_second / whole.per_second)
        };
        let report = Report {
            bench: "storage",
            connections: CONNECTIONS,
            seconds: self.seconds,
            figures: vec![
                figure("storage server over a store that does nothing: the floor", floor),
                figure("storage server over SQLite", sqlite),
                figure("storage server over SQLite, one hot resource", sqlite_hot),
                figure("storage server over PostgreSQL", postgres),
                figure("storage server over PostgreSQL, one hot resource", postgres_hot),
                figure("pgbench, unfenced upserts straight into PostgreSQL", pgbench),
            ],
            targets: vec![
                target("SQLite of the floor", SQLITE_OF_FLOOR, sqlite, floor),
                target("PostgreSQL of pgbench", POSTGRES_OF_PGBENCH, postgres, pgbench),
                target("SQLite, hot of spread", HOT_OF_SPREAD, sqlite_hot, sqlite),
                target("PostgreSQL, hot of spread", HOT_OF_SPREAD, postgres_hot, postgres),
            ],
        };
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print!("{}", report.table());
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Report {
    fn table(&self) -> String {
        let Self { connections, seconds, .. } = self;
        let mut text = format!(
            "Fenced writes of 5 bytes over HTTP, {connections} connections, {seconds} s each\n\n\
             {:<60} {:>9} {:>8} {:>8} {:>9} {:>11}\n",
            "", "writes/s", "p50 ms", "p99 ms", "of floor", "of pgbench"
        );
        let ms = |ms: Option<f64>| ms.map_or(String::new(), |ms| format!("{ms:.1}"));
        for figure in &self.figures {
            let Figure { subject, writes_per_second, p50_ms, p99_ms, of_floor, of_pgbench } =
                figure;
            text += &format!(
                "{subject:<60} {writes_per_second:>9.0} {:>8} {:>8} {of_floor:>9.2} {of_pgbench:>11.2}\n",
                ms(*p50_ms),
                ms(*p99_ms),
            );
        }
        text += "\n";
        for target in &self.targets {
            text += &target.line();
        }
        text
    }
}

/// Single upserts straight into the database.
fn unfenced_upserts(database: &Postgres, seconds: u32) -> anyhow::Result<Load> {
    psql(database, "create table unfenced (resource text primary key, value bytea not null)")?;
    let upsert = format!(
        "\\set n random(0, {RESOURCES} - 1)\n\
         insert into unfenced values ('bench/' || :n, 'hello') \
         on conflict (resource) do update set value = excluded.value;\n"
    );
    let run = |seconds| pgbench(database, &upsert, CONNECTIONS, Length::Seconds(seconds));
    run(WARM_UP_SECONDS)?;
    Ok(Load { per_second: run(seconds)?, p50_ms: None, p99_ms: None })
}

//! `lab bench storage`: fenced writes over HTTP.

use std::{fmt, num::NonZeroU32};

use clap::Args;
use serde::Serialize;
use testbed::{Postgres, StorageServer};

use super::{
    goal::Goal,
    load::{
        CONNECTIONS, Length, Load, MANY_RESOURCES, RESOURCES, WARM_UP_SECONDS, pgbench, psql,
        write_all, wrk,
    },
    null_server::NullServer,
};
use crate::{
    output::{Output, Table},
    programs::storage_server,
};

#[derive(Args, Debug)]
pub struct StorageBench {
    /// How long to measure each figure
    #[arg(long, default_value = "10", value_name = "SECONDS")]
    seconds: NonZeroU32,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    connections: u32,
    seconds: u32,
    figures: Vec<Figure>,
    #[serde(rename = "targets")]
    goals: Vec<Goal>,
}

#[derive(Debug, Serialize)]
struct Figure {
    subject: &'static str,
    writes_per_second: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    of_floor: f64,
    of_pgbench: f64,
}

impl StorageBench {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let seconds = self.seconds.get();
        let floor = {
            let server = NullServer::start().await?;
            wrk(&server.url, RESOURCES, seconds)?
        };
        let (sqlite, sqlite_hot, sqlite_many) = {
            let server = StorageServer::start(&storage_server()?, &[]).await?;
            measure(&server, seconds)?
        };
        let database = Postgres::start().await?;
        let pgbench = unfenced_upserts(&database, seconds)?;
        let (postgres, postgres_hot, postgres_many) = {
            let server = StorageServer::start_on(&storage_server()?, &database.url(), &[]).await?;
            measure(&server, seconds)?
        };

        let ratio = |part: Load, whole: Load| part.per_second / whole.per_second;
        let figure = |subject, load: Load| Figure {
            subject,
            writes_per_second: load.per_second,
            p50_ms: load.p50_ms,
            p99_ms: load.p99_ms,
            of_floor: ratio(load, floor),
            of_pgbench: ratio(load, pgbench),
        };
        self.output.print(&Report {
            bench: "storage",
            connections: CONNECTIONS,
            seconds,
            figures: vec![
                figure("storage server over a store that does nothing: the floor", floor),
                figure("storage server over SQLite", sqlite),
                figure("storage server over SQLite, one hot resource", sqlite_hot),
                figure("storage server over SQLite, a million resources", sqlite_many),
                figure("storage server over PostgreSQL", postgres),
                figure("storage server over PostgreSQL, one hot resource", postgres_hot),
                figure("storage server over PostgreSQL, a million resources", postgres_many),
                figure("pgbench, unfenced upserts straight into PostgreSQL", pgbench),
            ],
            goals: vec![
                Goal::at_least("SQLite of the floor", 0.65, ratio(sqlite, floor)),
                Goal::at_least("PostgreSQL of the floor", 0.65, ratio(postgres, floor)),
                Goal::at_least("PostgreSQL of pgbench", 1.2, ratio(postgres, pgbench)),
                Goal::at_least("SQLite, a million of few", 0.75, ratio(sqlite_many, sqlite)),
                Goal::at_least(
                    "PostgreSQL, a million of few",
                    0.75,
                    ratio(postgres_many, postgres),
                ),
                Goal::at_least("SQLite, hot of spread", 0.1, ratio(sqlite_hot, sqlite)),
                Goal::at_least("PostgreSQL, hot of spread", 0.1, ratio(postgres_hot, postgres)),
            ],
        })
    }
}

/// Measures writes that are spread over few resources, on a single one, and over a million.
fn measure(server: &StorageServer, seconds: u32) -> anyhow::Result<(Load, Load, Load)> {
    let (few, hot) = (wrk(server.url(), RESOURCES, seconds)?, wrk(server.url(), 1, seconds)?);
    // Each of the million is written before.
    write_all(server.url(), MANY_RESOURCES)?;
    Ok((few, hot, wrk(server.url(), MANY_RESOURCES, seconds)?))
}

/// Measures single upserts straight into the database.
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, seconds, figures, goals, .. } = self;
        let ms = |ms: Option<f64>| ms.map_or(String::new(), |ms| format!("{ms:.1}"));
        let rows = figures.iter().map(|figure| {
            [
                figure.subject.to_owned(),
                format!("{:.0}", figure.writes_per_second),
                ms(figure.p50_ms),
                ms(figure.p99_ms),
                format!("{:.2}", figure.of_floor),
                format!("{:.2}", figure.of_pgbench),
            ]
        });
        let header = ["", "writes/s", "p50 ms", "p99 ms", "of floor", "of pgbench"];
        writeln!(
            f,
            "Fenced writes of 5 bytes over HTTP, {connections} connections, {seconds} s each\n"
        )?;
        write!(f, "{}\n{}", Table::new(header, rows), Goal::table(goals))
    }
}

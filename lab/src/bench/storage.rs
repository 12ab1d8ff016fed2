//! `lab bench storage`: fenced writes over HTTP.

mod object_storage;
mod replicated;

use std::{fmt, num::NonZeroU32, path::Path};

use anyhow::ensure;
use clap::Args;
use futures_util::{FutureExt, future::LocalBoxFuture};
use serde::Serialize;
use tempfile::TempDir;
use testbed::{Authority, Postgres, Program, StorageServer};

use self::{object_storage::OverObjectStorage, replicated::Replicated};
use super::{
    goal::Goal,
    load::{
        CONNECTIONS, Length, Load, MANY_RESOURCES, RESOURCES, WARM_UP_SECONDS, Writes, pgbench,
        psql, write_all, wrk,
    },
    null_server::NullServer,
};
use crate::{
    output::{Output, Table},
    programs::storage_server,
};

/// Every subject is measured once in each round, because the speed of a machine changes over time.
const ROUNDS: u32 = 5;
const UNFENCED_TABLE: &str =
    "create table unfenced (resource text primary key, value bytea not null)";

#[derive(Args, Debug)]
pub struct StorageBench {
    /// How long to measure each figure, in five rounds of whole seconds
    #[arg(long, default_value = "10", value_name = "SECONDS")]
    seconds: NonZeroU32,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    connections: u32,
    /// Of all rounds together.
    seconds: u32,
    figures: Vec<Figure>,
    /// How many requests to object storage a write of a client costs that holds a lock.
    requests_per_write: f64,
    #[serde(rename = "targets")]
    goals: Vec<Goal>,
}

#[derive(Debug, Serialize)]
struct Figure {
    subject: &'static str,
    writes_per_second: f64,
    p50_ms: Option<f64>,
    /// In the worst round, so that a rare stall is seen.
    p99_ms: Option<f64>,
    /// The ratio to the null server. The key has an old name, because earlier results have it.
    #[serde(rename = "of_floor")]
    of_null_server: f64,
    of_pgbench: f64,
}

/// What is measured.
struct Subject<'a> {
    name: &'static str,
    run: Box<dyn Fn(u32) -> LocalBoxFuture<'a, anyhow::Result<Load>> + 'a>,
    /// One in each round.
    loads: Vec<Load>,
}

impl<'a> Subject<'a> {
    fn new<F: Future<Output = anyhow::Result<Load>> + 'a>(
        name: &'static str,
        run: impl Fn(u32) -> F + 'a,
    ) -> Self {
        Self { name, run: Box::new(move |seconds| run(seconds).boxed_local()), loads: Vec::new() }
    }

    /// Fenced writes over HTTP, spread over resources.
    fn writes(name: &'static str, url: &'a str, resources: u32) -> Self {
        let writes = Writes { url, bearer: None, resources, in_transaction: None };
        Self::new(name, move |seconds| wrk(writes, seconds))
    }

    /// The same by a client with an identity.
    fn writes_as(name: &'static str, url: &'a str, bearer: &'a str) -> Self {
        let writes =
            Writes { url, bearer: Some(bearer), resources: RESOURCES, in_transaction: None };
        Self::new(name, move |seconds| wrk(writes, seconds))
    }

    /// Fenced writes in transactions, of this many resources each.
    fn transactions(name: &'static str, url: &'a str, of: u32) -> Self {
        let writes = Writes { url, bearer: None, resources: RESOURCES, in_transaction: Some(of) };
        Self::new(name, move |seconds| wrk(writes, seconds))
    }

    /// A figure of each round, if all have it.
    fn rounds(&self, figure: impl Fn(&Load) -> Option<f64>) -> Option<Vec<f64>> {
        self.loads.iter().map(figure).collect()
    }

    fn rate(&self) -> f64 {
        median(self.loads.iter().map(|load| load.per_second).collect())
    }

    /// The ratio of the rates of one round, in the median of all rounds.
    fn ratio(&self, whole: &Self) -> f64 {
        let pairs = self.loads.iter().zip(&whole.loads);
        median(pairs.map(|(part, whole)| part.per_second / whole.per_second).collect())
    }
}

fn highest(figures: Vec<f64>) -> f64 {
    figures.into_iter().fold(0.0, f64::max)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

impl StorageBench {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let seconds_of_round = self.seconds.get().div_ceil(ROUNDS);
        // Each large database is one of its own, so that the small ones stay small.
        let program = storage_server()?;
        let null_server = NullServer::start().await?;
        let sqlite = StorageServer::start(&program, &[]).await?;
        let folder = TempDir::with_prefix("fenced-")?;
        let auth_file = folder.path().join("auth.toml");
        let bearer = new_identity(&program, &auth_file)?;
        let auth = ["--auth-file", text(&auth_file)];
        let guarded = StorageServer::start(&program, &auth).await?;
        let authority = Authority::new()?;
        let certificate = authority.sign_for_loopback()?;
        let tls =
            ["--tls-cert", text(&certificate.certificate), "--tls-key", text(&certificate.key)];
        let encrypted = StorageServer::start(&program, &[&auth[..], &tls[..]].concat()).await?;
        let large_sqlite = StorageServer::start(&program, &[]).await?;
        let database = Postgres::start().await?;
        let large_database = Postgres::start().await?;
        let postgres = StorageServer::start_on(&program, &database.url(), &[]).await?;
        let large_postgres = StorageServer::start_on(&program, &large_database.url(), &[]).await?;
        for large in [&large_sqlite, &large_postgres] {
            write_all(large.url(), MANY_RESOURCES).await?;
        }
        let one_standby = Replicated::start(&program, 1).await?;
        let two_standbys = Replicated::start(&program, 2).await?;
        let objects = OverObjectStorage::start(&program).await?;
        for database in [&database, &one_standby.primary, &two_standbys.primary] {
            psql(database, UNFENCED_TABLE).await?;
        }

        let mut subjects = [
            Subject::writes(
                "null server: the storage server over a store that does nothing",
                &null_server.url,
                RESOURCES,
            ),
            Subject::writes("storage server over SQLite", sqlite.url(), RESOURCES),
            Subject::writes("storage server over SQLite, one hot resource", sqlite.url(), 1),
            Subject::writes(
                "storage server over SQLite, a million resources",
                large_sqlite.url(),
                MANY_RESOURCES,
            ),
            Subject::writes_as("storage server over SQLite, identities", guarded.url(), &bearer),
            Subject::writes_as(
                "storage server over SQLite, identities and TLS",
                encrypted.url(),
                &bearer,
            ),
            Subject::transactions(
                "storage server over SQLite, transactions of two writes",
                sqlite.url(),
                2,
            ),
            Subject::writes("storage server over PostgreSQL", postgres.url(), RESOURCES),
            Subject::writes("storage server over PostgreSQL, one hot resource", postgres.url(), 1),
            Subject::writes(
                "storage server over PostgreSQL, a million resources",
                large_postgres.url(),
                MANY_RESOURCES,
            ),
            Subject::new("pgbench, unfenced upserts straight into PostgreSQL", |seconds| {
                unfenced_upserts(&database, seconds)
            }),
            Subject::writes(
                "storage server over PostgreSQL, one synchronous standby",
                one_standby.server.url(),
                RESOURCES,
            ),
            Subject::new("pgbench, one synchronous standby", |seconds| {
                unfenced_upserts(&one_standby.primary, seconds)
            }),
            Subject::writes(
                "storage server over PostgreSQL, two synchronous standbys",
                two_standbys.server.url(),
                RESOURCES,
            ),
            Subject::new("pgbench, two synchronous standbys", |seconds| {
                unfenced_upserts(&two_standbys.primary, seconds)
            }),
            Subject::writes(
                "storage server over object storage, a resource for each connection",
                objects.server.url(),
                CONNECTIONS,
            ),
            Subject::writes(
                "storage server over object storage, one hot resource",
                objects.server.url(),
                1,
            ),
            Subject::new("unfenced conditional writes straight into object storage", |seconds| {
                objects.conditional_writes(seconds)
            }),
        ];
        for subject in &subjects {
            (subject.run)(WARM_UP_SECONDS).await?;
        }
        for _ in 0..ROUNDS {
            for subject in &mut subjects {
                subject.loads.push((subject.run)(seconds_of_round).await?);
            }
        }

        let [
            null_server,
            sqlite,
            sqlite_hot,
            sqlite_many,
            guarded,
            encrypted,
            _,
            postgres,
            postgres_hot,
            postgres_many,
            pgbench,
            one_standby,
            pgbench_one_standby,
            two_standbys,
            pgbench_two_standbys,
            ..,
        ] = &subjects;
        let requests_per_write = objects.requests_per_write().await?;
        self.output.print(&Report {
            bench: "storage",
            connections: CONNECTIONS,
            seconds: ROUNDS * seconds_of_round,
            figures: subjects
                .iter()
                .map(|subject| Figure {
                    subject: subject.name,
                    writes_per_second: subject.rate(),
                    p50_ms: subject.rounds(|load| load.p50_ms).map(median),
                    p99_ms: subject.rounds(|load| load.p99_ms).map(highest),
                    of_null_server: subject.ratio(null_server),
                    of_pgbench: subject.ratio(pgbench),
                })
                .collect(),
            requests_per_write,
            goals: vec![
                Goal::at_least("SQLite of the null server", 0.65, sqlite.ratio(null_server)),
                Goal::at_least("PostgreSQL of the null server", 0.65, postgres.ratio(null_server)),
                Goal::at_least("PostgreSQL of pgbench", 1.2, postgres.ratio(pgbench)),
                Goal::at_least(
                    "one standby, of pgbench",
                    0.8,
                    one_standby.ratio(pgbench_one_standby),
                ),
                Goal::at_least(
                    "two standbys, of pgbench",
                    0.8,
                    two_standbys.ratio(pgbench_two_standbys),
                ),
                Goal::at_most("object storage, requests per write", 1.1, requests_per_write),
                Goal::at_least("SQLite, a million of few", 0.75, sqlite_many.ratio(sqlite)),
                Goal::at_least("SQLite, identities of none", 0.85, guarded.ratio(sqlite)),
                Goal::at_least("SQLite, identities and TLS of none", 0.6, encrypted.ratio(sqlite)),
                Goal::at_least("PostgreSQL, a million of few", 0.75, postgres_many.ratio(postgres)),
                Goal::at_least("SQLite, hot of spread", 0.1, sqlite_hot.ratio(sqlite)),
                Goal::at_least("PostgreSQL, hot of spread", 0.1, postgres_hot.ratio(postgres)),
            ],
        })
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the folders of this program are UTF-8")
}

/// Adds an identity that may write what the bench does, and returns its bearer token.
fn new_identity(program: &Program, auth_file: &Path) -> anyhow::Result<String> {
    let output = program
        .command()
        .args(["auth", "new", "--name", "bench", "--prefix", "bench/", "--allow", "write"])
        .arg("--auth-file")
        .arg(auth_file)
        .output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "no identity was made: {error}");
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// Measures single upserts straight into the database.
async fn unfenced_upserts(database: &Postgres, seconds: u32) -> anyhow::Result<Load> {
    let upsert = format!(
        "\\set n random(0, {RESOURCES} - 1)\n\
         insert into unfenced values ('bench/' || :n, 'hello') \
         on conflict (resource) do update set value = excluded.value;\n"
    );
    let per_second = pgbench(database, &upsert, CONNECTIONS, Length::Seconds(seconds)).await?;
    Ok(Load { per_second, p50_ms: None, p99_ms: None })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, seconds, figures, requests_per_write, goals, .. } = self;
        let ms = |ms: Option<f64>| ms.map_or(String::new(), |ms| format!("{ms:.1}"));
        let rows = figures.iter().map(|figure| {
            [
                figure.subject.to_owned(),
                format!("{:.0}", figure.writes_per_second),
                ms(figure.p50_ms),
                ms(figure.p99_ms),
                format!("{:.2}", figure.of_null_server),
                format!("{:.2}", figure.of_pgbench),
            ]
        });
        let header = ["", "writes/s", "p50 ms", "worst p99 ms", "of null server", "of pgbench"];
        writeln!(
            f,
            "Fenced writes of 5 bytes over HTTP, {connections} connections, {seconds} s each in \
             {ROUNDS} rounds\n"
        )?;
        writeln!(f, "{}", Table::new(header, rows))?;
        writeln!(
            f,
            "Requests to object storage for each write of one client: {requests_per_write:.2}\n"
        )?;
        write!(f, "{}", Goal::table(goals))
    }
}

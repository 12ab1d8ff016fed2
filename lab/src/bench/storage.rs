//! `lab bench storage`.

use std::{
    io::Write,
    path::Path,
    process::{Command, ExitCode},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use clap::Args;
use serde::{Deserialize, Serialize};
use storage_server::{
    Enforcement,
    row::Row,
    serve,
    store::{ApplyError, Change, Listed, Page, Store, Unreachable, Wanted},
};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::{
    process::Process,
    servers::{Postgres, StorageServer, installed, postgres},
};

const CONNECTIONS: u32 = 64;
const RESOURCES: u32 = 10_000;
const WARM_UP_SECONDS: u32 = 2;
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

/// A ratio that is meant to be reached.
#[derive(Debug, Serialize)]
struct Target {
    ratio: &'static str,
    at_least: f64,
    measured: f64,
    reached: bool,
}

/// What a load generator saw.
#[derive(Clone, Copy, Debug)]
struct Load {
    per_second: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

impl StorageBench {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let floor = {
            let nothing = ServerOfNothing::start().await?;
            self.wrk(&nothing.url, RESOURCES)?
        };
        let (sqlite, sqlite_hot) = {
            let server = StorageServer::start(&[]).await?;
            (self.wrk(server.url(), RESOURCES)?, self.wrk(server.url(), 1)?)
        };
        let database = Postgres::start().await?;
        let pgbench = self.pgbench(&database)?;
        let (postgres, postgres_hot) = {
            let server = StorageServer::start_on(&database.url(), &[]).await?;
            (self.wrk(server.url(), RESOURCES)?, self.wrk(server.url(), 1)?)
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
            let measured = part.per_second / whole.per_second;
            Target { ratio, at_least, measured, reached: measured >= at_least }
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

    /// Fenced writes over HTTP.
    fn wrk(&self, url: &str, resources: u32) -> anyhow::Result<Load> {
        #[derive(Deserialize)]
        struct Done {
            requests: u32,
            duration_us: u32,
            failed: u32,
            p50_us: u32,
            p99_us: u32,
        }
        let folder = TempDir::with_prefix("fenced-")?;
        let script = written(folder.path(), "put.lua", include_str!("put.lua"))?;
        let run = |seconds: u32| -> anyhow::Result<Done> {
            let output = Command::new(installed("wrk", &[], "the package wrk (brew: wrk)")?)
                .args(["--threads", "1", "--connections", &CONNECTIONS.to_string()])
                .args(["--duration", &format!("{seconds}s")])
                .arg("--script")
                .arg(&script)
                .args([url, "--", &resources.to_string()])
                .output()?;
            let stdout = String::from_utf8(output.stdout)?;
            let done = stdout.lines().find(|line| line.starts_with('{'));
            let done: Done = serde_json::from_str(done.context("wrk printed no result")?)?;
            ensure!(done.failed == 0, "{} requests failed", done.failed);
            Ok(done)
        };
        run(WARM_UP_SECONDS)?;
        let done = run(self.seconds)?;
        Ok(Load {
            per_second: f64::from(done.requests) * 1e6 / f64::from(done.duration_us),
            p50_ms: Some(f64::from(done.p50_us) / 1e3),
            p99_ms: Some(f64::from(done.p99_us) / 1e3),
        })
    }

    /// Unfenced single upserts straight into the database.
    fn pgbench(&self, database: &Postgres) -> anyhow::Result<Load> {
        let socket = database.socket_folder();
        let table = "create table unfenced (resource text primary key, value bytea not null)";
        let created = Command::new(postgres::program("psql")?)
            .args(["--quiet", "--username=postgres", "--host"])
            .arg(socket)
            .args(["--command", table])
            .status()?;
        ensure!(created.success(), "psql could not create the table for pgbench");
        let upsert = format!(
            "\\set n random(0, {RESOURCES} - 1)\n\
             insert into unfenced values ('bench/' || :n, 'hello') \
             on conflict (resource) do update set value = excluded.value;\n"
        );
        let folder = TempDir::with_prefix("fenced-")?;
        let script = written(folder.path(), "upsert.sql", &upsert)?;
        let run = |seconds: u32| -> anyhow::Result<f64> {
            let output = Command::new(postgres::program("pgbench")?)
                .args(["--no-vacuum", "--protocol=prepared", "--jobs=2", "--username=postgres"])
                .args([format!("--client={CONNECTIONS}"), format!("--time={seconds}")])
                .arg("--host")
                .arg(socket)
                .arg("--file")
                .arg(&script)
                .arg("postgres")
                .output()?;
            let stdout = String::from_utf8(output.stdout)?;
            let tps = stdout.lines().find_map(|line| line.strip_prefix("tps = "));
            let tps = tps.and_then(|tps| tps.split(' ').next());
            Ok(tps.context("pgbench printed no result")?.parse()?)
        };
        run(WARM_UP_SECONDS)?;
        Ok(Load { per_second: run(self.seconds)?, p50_ms: None, p99_ms: None })
    }
}

fn written(folder: &Path, name: &str, text: &str) -> anyhow::Result<std::path::PathBuf> {
    let file = folder.join(name);
    std::fs::File::create(&file)?.write_all(text.as_bytes())?;
    Ok(file)
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
        for Target { ratio, at_least, measured, reached } in &self.targets {
            let reached = if *reached { "reached" } else { "MISSED" };
            text += &format!("{ratio}: {measured:.2}, to be at least {at_least}: {reached}\n");
        }
        text
    }
}

/// The storage server over a store that does nothing, as a process of its own.
struct ServerOfNothing {
    url: String,
    _process: Process,
    _folder: TempDir,
}

impl ServerOfNothing {
    async fn start() -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve-nothing");
        let mut process = Process::spawn("serve-nothing", &command, folder.path())?;
        let url = process.line(Duration::from_secs(10)).await?;
        Ok(Self { url, _process: process, _folder: folder })
    }
}

/// Serves a store that does nothing, and prints the URL.
///
/// # Errors
/// If it can't listen.
pub async fn serve_nothing() -> anyhow::Result<ExitCode> {
    // The server runs on as many threads as it does by itself.
    let serving = || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            println!("http://{}", listener.local_addr()?);
            let forever = std::future::pending();
            serve(listener, Arc::new(Nothing), Enforcement::Enforce, 1 << 20, forever).await
        })
    };
    tokio::task::spawn_blocking(serving).await??;
    Ok(ExitCode::SUCCESS)
}

/// A store that takes everything and keeps nothing.
struct Nothing;

#[async_trait]
impl Store for Nothing {
    async fn load(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Row>, Unreachable> {
        Ok(vec![Row::default(); wanted.len()])
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        Ok(vec![true; changes.len()])
    }

    async fn list(&self, _page: &Page) -> Result<Vec<Listed>, Unreachable> {
        Ok(Vec::new())
    }

    async fn ping(&self) -> Result<(), Unreachable> {
        Ok(())
    }
}

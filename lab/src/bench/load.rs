//! Load generators: wrk over HTTP, and pgbench straight into PostgreSQL. Proxies in this process carry bytes
//! while they run.

use std::{fs, time::Duration};

use anyhow::{Context, ensure};
use serde::Deserialize;
use tempfile::TempDir;
use testbed::{Postgres, installed, postgres};
use tokio::process::Command;

/// The number of HTTP connections of wrk, and of clients of the pgbench next to it.
pub(super) const CONNECTIONS: u32 = 64;
/// The number of resources that the writes are spread over.
pub(super) const RESOURCES: u32 = 10_000;
/// The number of resources of a large database.
pub(super) const MANY_RESOURCES: u32 = 1_000_000;
pub(super) const WARM_UP_SECONDS: u32 = 2;
/// How long each step of filling a large database takes.
const FILLING_SECONDS: u32 = 10;

/// What a load generator measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) per_second: f64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

/// What wrk prints.
#[derive(Deserialize)]
struct Done {
    requests: u32,
    duration_us: u32,
    failed: u32,
    p50_us: u32,
    p99_us: u32,
}

/// The fenced writes that wrk sends over HTTP.
#[derive(Clone, Copy)]
pub(super) struct Writes<'a> {
    pub(super) url: &'a str,
    /// What the client sends as its bearer token.
    pub(super) bearer: Option<&'a str>,
    /// How many resources they are spread over.
    pub(super) resources: u32,
    /// How many writes are one transaction.
    pub(super) in_transaction: Option<u32>,
}

/// Sends fenced writes for some seconds.
pub(super) async fn wrk(writes: Writes<'_>, seconds: u32) -> anyhow::Result<Load> {
    let done = run_wrk(writes, 0, seconds).await?;
    let written = f64::from(done.requests) * f64::from(writes.in_transaction.unwrap_or(1));
    Ok(Load {
        per_second: written * 1e6 / f64::from(done.duration_us),
        p50_ms: Some(f64::from(done.p50_us) / 1e3),
        p99_ms: Some(f64::from(done.p99_us) / 1e3),
    })
}

/// Writes each of these resources once or more, over HTTP.
pub(super) async fn write_all(url: &str, resources: u32) -> anyhow::Result<()> {
    let writes = Writes { url, bearer: None, resources, in_transaction: None };
    let mut written = 0;
    while written < resources {
        written += run_wrk(writes, written, FILLING_SECONDS).await?.requests;
    }
    Ok(())
}

/// Runs wrk, which begins after the first `skipped` writes.
async fn run_wrk(writes: Writes<'_>, skipped: u32, seconds: u32) -> anyhow::Result<Done> {
    let Writes { url, bearer, resources, in_transaction } = writes;
    let folder = TempDir::with_prefix("fenced-")?;
    let script = folder.path().join("put.lua");
    fs::write(&script, include_str!("put.lua"))?;
    let output = Command::new(installed("wrk", &[], "the package wrk (brew: wrk)")?)
        .args(["--threads", "1", "--connections", &CONNECTIONS.to_string()])
        .args(["--duration", &format!("{seconds}s")])
        .arg("--script")
        .arg(&script)
        .args([url, "--", &resources.to_string(), &skipped.to_string()])
        .arg(in_transaction.unwrap_or(0).to_string())
        .args(bearer)
        .kill_on_drop(true)
        .output()
        .await?;
    let stdout = String::from_utf8(output.stdout)?;
    let done = stdout.lines().find(|line| line.starts_with('{'));
    let done: Done = serde_json::from_str(done.context("wrk printed no result")?)?;
    ensure!(done.failed == 0, "{} requests failed", done.failed);
    Ok(done)
}

/// How long pgbench runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Length {
    Seconds(u32),
    /// The number of transactions of each client.
    Transactions(u32),
}

/// Runs a script with pgbench, and returns its transactions per second.
pub(super) async fn pgbench(
    database: &Postgres,
    script: &str,
    clients: u32,
    length: Length,
) -> anyhow::Result<f64> {
    let folder = TempDir::with_prefix("fenced-")?;
    let length = match length {
        Length::Seconds(seconds) => format!("--time={seconds}"),
        Length::Transactions(transactions) => format!("--transactions={transactions}"),
    };
    let options = ["--jobs=2".to_owned(), format!("--client={clients}"), length];
    let stdout = run_pgbench(database, script, &options, &folder).await?;
    let tps = stdout.lines().find_map(|line| line.strip_prefix("tps = "));
    let tps = tps.and_then(|tps| tps.split(' ').next());
    Ok(tps.context("pgbench completed no transaction: measure for longer")?.parse()?)
}

/// The first runs of a script prepare its statements and fill the caches of the session.
const WARM_UP_RUNS: usize = 10;

/// Runs a script with one client of pgbench, and returns how long each run took.
pub(super) async fn pgbench_times(
    database: &Postgres,
    script: &str,
    count: usize,
) -> anyhow::Result<Vec<Duration>> {
    let folder = TempDir::with_prefix("fenced-")?;
    let prefix = folder.path().join("log");
    let options = [
        "--log".to_owned(),
        format!("--log-prefix={}", prefix.display()),
        format!("--transactions={}", WARM_UP_RUNS + count),
    ];
    run_pgbench(database, script, &options, &folder).await?;
    let logs: Vec<_> = fs::read_dir(&folder)?.collect::<Result<_, _>>()?;
    let log = logs.iter().find(|file| file.file_name().to_string_lossy().starts_with("log."));
    let log = fs::read_to_string(log.context("pgbench wrote no log")?.path())?;
    // pgbench reads the clock only when it has waited for an answer, so that the times in its log may
    // be 0. The moments of two runs in turn are always apart.
    let ends: Vec<_> = log.lines().map(end_of_run).collect::<anyhow::Result<_>>()?;
    Ok(ends.windows(2).skip(WARM_UP_RUNS - 1).map(|ends| ends[1] - ends[0]).collect())
}

/// When a run ended, by the fifth and sixth column in the log: seconds and microseconds.
fn end_of_run(line: &str) -> anyhow::Result<Duration> {
    let mut columns = line.split(' ').skip(4);
    let mut next = || columns.next().context("pgbench logged no time");
    Ok(Duration::from_secs(next()?.parse()?) + Duration::from_micros(next()?.parse()?))
}

/// Runs a script with pgbench, and returns what it prints.
async fn run_pgbench(
    database: &Postgres,
    script: &str,
    options: &[String],
    folder: &TempDir,
) -> anyhow::Result<String> {
    let file = folder.path().join("script.sql");
    fs::write(&file, script)?;
    let output = Command::new(postgres::program("pgbench")?)
        .args(["--no-vacuum", "--protocol=prepared", "--username=postgres"])
        .args(options)
        .arg("--host")
        .arg(database.socket_folder())
        .arg("--file")
        .arg(&file)
        .arg("postgres")
        .kill_on_drop(true)
        .output()
        .await?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "pgbench failed: {stderr}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs SQL with psql.
pub(super) async fn psql(database: &Postgres, commands: &str) -> anyhow::Result<()> {
    let output = Command::new(postgres::program("psql")?)
        .args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--username=postgres", "--host"])
        .arg(database.socket_folder())
        .args(["--command", commands])
        .kill_on_drop(true)
        .output()
        .await?;
    ensure!(output.status.success(), "psql failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

//! Load generators: wrk over HTTP, pgbench straight into PostgreSQL, and clients in this thread. Proxies in
//! this process carry bytes while the first two run.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use serde::Deserialize;
use tempfile::TempDir;
use testbed::{Postgres, installed, postgres};
use tokio::process::Command;

/// The number of HTTP connections of wrk, and of clients of the pgbench next to it.
pub(super) const CONNECTIONS: u32 = 64;
/// The number of resources that the writes are spread over.
pub(super) const RESOURCES: u32 = 10_000;
/// How long each step of filling a large database takes.
const FILLING_SECONDS: usize = 10;

/// What a load generator measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) per_second: f64,
    /// pgbench has no times.
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

/// Lets each client repeat a write for some seconds, the next one after the answer to the last.
pub(super) async fn repeat(
    clients: impl IntoIterator<Item = impl AsyncFnMut() -> anyhow::Result<()>>,
    seconds: usize,
) -> anyhow::Result<Load> {
    let begun = Instant::now();
    let end = begun + Duration::from_secs(seconds as u64);
    let clients = clients.into_iter().map(async |mut write| {
        let mut times = Vec::new();
        while Instant::now() < end {
            let sent = Instant::now();
            write().await?;
            times.push(sent.elapsed());
        }
        anyhow::Ok(times)
    });
    let mut times = try_join_all(clients).await?.concat();
    let per_second = times.len() as f64 / begun.elapsed().as_secs_f64();
    ensure!(!times.is_empty(), "nothing was written");
    times.sort_unstable();
    let percentile = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    Ok(Load { per_second, p50_ms: Some(percentile(50)), p99_ms: Some(percentile(99)) })
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
pub(super) async fn wrk(writes: Writes<'_>, seconds: usize) -> anyhow::Result<Load> {
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
async fn run_wrk(writes: Writes<'_>, skipped: u32, seconds: usize) -> anyhow::Result<Done> {
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

/// Runs a script with pgbench, for as long as an option of it says, and returns its transactions per second.
pub(super) async fn pgbench(
    database: &Postgres,
    script: &str,
    clients: u32,
    length: String,
) -> anyhow::Result<Load> {
    let folder = TempDir::with_prefix("fenced-")?;
    let options = ["--jobs=2".to_owned(), format!("--client={clients}"), length];
    let stdout = run_pgbench(database, script, &options, &folder).await?;
    let tps = stdout.lines().find_map(|line| line.strip_prefix("tps = "));
    let tps = tps.and_then(|tps| tps.split(' ').next());
    let tps = tps.context("pgbench completed no transaction: measure for longer")?;
    Ok(Load { per_second: tps.parse()?, p50_ms: None, p99_ms: None })
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

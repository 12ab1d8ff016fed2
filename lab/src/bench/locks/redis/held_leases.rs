//! Many leases that one process holds and renews.

use std::{
    io::{self, BufRead},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::ensure;
use clap::Args;
use fence::ResourceName;
use lock_client::{Lease, Locks, Ttl};
use serde::Serialize;
use tempfile::TempDir;
use testbed::{Redis, process::Process};
use tokio::{task::JoinSet, time::sleep};

use crate::bench::work::Meter;

/// How long the process may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How many leases are acquired at once. With more, requests would time out behind others.
const AT_ONCE: usize = 100;

/// Acquires leases and renews them, and reports on demand how many it still holds.
#[derive(Args, Debug)]
pub struct HoldLeases {
    /// The URL of Redis
    #[arg(long)]
    locks: String,
    #[arg(long)]
    leases: usize,
    #[arg(long)]
    ttl_ms: u64,
}

impl HoldLeases {
    /// Prints a line when it holds all leases. Then it answers each line on stdin with the number
    /// of leases that it still believes to hold.
    ///
    /// # Errors
    /// If a lease can't be acquired.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let locks = Locks::new(lock_client::redis::Redis::open(&self.locks)?);
        let ttl = Ttl::new(Duration::from_millis(self.ttl_ms))?;
        let mut leases: Vec<Lease> = Vec::new();
        while leases.len() < self.leases {
            let mut acquiring = JoinSet::new();
            for n in leases.len()..self.leases.min(leases.len() + AT_ONCE) {
                let (locks, name) = (locks.clone(), format!("crowd/{n}"));
                acquiring.spawn(async move {
                    let name: ResourceName = name.parse()?;
                    anyhow::Ok(locks.acquire(&name, ttl).await?)
                });
            }
            while let Some(lease) = acquiring.join_next().await {
                leases.push(lease??);
            }
        }
        println!("{}", leases.len());
        let read = || io::stdin().lock().read_line(&mut String::new());
        while tokio::task::spawn_blocking(read).await?? > 0 {
            println!("{}", leases.iter().filter(|lease| lease.token().is_ok()).count());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// How the leases fared.
#[derive(Debug, Serialize)]
pub(super) struct HeldLeases {
    pub(super) leases: usize,
    pub(super) ttl_ms: u64,
    pub(super) held_for_ms: u64,
    /// The number of locks that Redis has at the end.
    pub(super) taken: usize,
    /// The number of leases that the process believes to hold at the end.
    pub(super) relied_on: usize,
    /// The mean number of renewals of a lease.
    pub(super) renewals: f64,
    /// The most memory that the process ever used; known only on Linux.
    pub(super) peak_rss_mib: Option<f64>,
}

impl HeldLeases {
    /// Lets a process hold leases for two and a half times their ttl.
    pub(super) async fn measure(
        redis: &Redis,
        leases: usize,
        held_for: Duration,
        meter: &mut Meter,
    ) -> anyhow::Result<Self> {
        let ttl = held_for * 2 / 5;
        let folder = TempDir::with_prefix("fenced-")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["hold-leases", "--locks", &redis.url()]);
        command.args(["--leases", &leases.to_string()]);
        command.args(["--ttl-ms", &ttl.as_millis().to_string()]);
        let mut process = Process::spawn("hold-leases", &command, folder.path())?;
        let acquired: usize = process.line(ANSWER_TIMEOUT).await?.parse()?;
        ensure!(acquired == leases, "the process acquired {acquired} leases instead of {leases}");

        let before = meter.read().await?;
        sleep(held_for).await;
        let work = meter.read().await?.since(&before);
        let taken = meter.count_keys("fenced:{crowd/*}:lock").await?;
        process.write_line("how many")?;
        let relied_on = process.line(ANSWER_TIMEOUT).await?.parse()?;
        Ok(Self {
            leases,
            ttl_ms: ttl.as_millis().try_into()?,
            held_for_ms: held_for.as_millis().try_into()?,
            taken,
            relied_on,
            renewals: work.calls_of("evalsha") as f64 / leases as f64,
            peak_rss_mib: peak_rss_mib(&process)?,
        })
    }

    /// The part of the leases that both Redis and the process have.
    pub(super) fn part_held(&self) -> f64 {
        self.taken.min(self.relied_on) as f64 / self.leases as f64
    }
}

#[cfg(target_os = "linux")]
fn peak_rss_mib(process: &Process) -> anyhow::Result<Option<f64>> {
    use anyhow::Context;

    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib =
        peak.and_then(|peak| peak.trim().strip_suffix(" kB")).context("/proc shows no VmHWM")?;
    Ok(Some(kib.parse::<f64>()? / 1024.0))
}

#[cfg(not(target_os = "linux"))]
fn peak_rss_mib(_process: &Process) -> anyhow::Result<Option<f64>> {
    Ok(None)
}

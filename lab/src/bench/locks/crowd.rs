//! Many leases that one process holds, and renews.

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
use tokio::{task::JoinSet, time::sleep};

use crate::bench::work::Meter;
use testbed::{Redis, process::Process};

/// How long the process may take for what it is told.
const PATIENCE: Duration = Duration::from_secs(60);
/// As many are acquired at once: a request that waits for long behind others is given up.
const AT_ONCE: usize = 100;

/// Acquires leases, has them renewed, and tells on demand how many there still are.
#[derive(Args, Debug)]
pub struct HoldLeases {
    /// The URL of Redis
    #[arg(long)]
    redis: String,
    #[arg(long)]
    leases: usize,
    #[arg(long)]
    ttl_ms: u64,
}

impl HoldLeases {
    /// Prints a line when it has all leases, and then, after each line on stdin, how many of them
    /// still can be relied on.
    ///
    /// # Errors
    /// If a lease can't be acquired.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let locks = Locks::new(lock_client::redis::Redis::open(&self.redis)?);
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

/// What became of the leases.
#[derive(Debug, Serialize)]
pub(super) struct Crowd {
    pub(super) leases: usize,
    pub(super) ttl_ms: u64,
    pub(super) held_for_ms: u64,
    /// Redis's share of the truth: how many of the locks are taken in the end.
    pub(super) taken: usize,
    /// The process's own: on how many of them it relies.
    pub(super) relied_on: usize,
    /// How often each was renewed.
    pub(super) renewals: f64,
    /// The most memory that the process ever had; only Linux tells it.
    pub(super) peak_rss_mib: Option<f64>,
}

impl Crowd {
    /// Has a process hold so many leases for so long, which is two and a half times their ttl.
    pub(super) async fn measure(
        redis: &Redis,
        leases: usize,
        held_for: Duration,
        meter: &mut Meter,
    ) -> anyhow::Result<Self> {
        let ttl = held_for * 2 / 5;
        let folder = TempDir::with_prefix("fenced-")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["hold-leases", "--redis", &redis.url()]);
        command.args(["--leases", &leases.to_string()]);
        command.args(["--ttl-ms", &ttl.as_millis().to_string()]);
        let mut process = Process::spawn("hold-leases", &command, folder.path())?;
        let acquired: usize = process.line(PATIENCE).await?.parse()?;
        ensure!(acquired == leases, "it has {acquired} leases instead of {leases}");

        let before = meter.read().await?;
        sleep(held_for).await;
        let work = meter.read().await?.since(&before);
        let taken = meter.keys("fenced:{crowd/*}:lock").await?;
        process.write_line("how many")?;
        let relied_on = process.line(PATIENCE).await?.parse()?;
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

    /// The part of the leases that both sides agree on.
    pub(super) fn part_held(&self) -> f64 {
        self.taken.min(self.relied_on) as f64 / self.leases as f64
    }
}

#[cfg(target_os = "linux")]
fn peak_rss_mib(process: &Process) -> anyhow::Result<Option<f64>> {
    use anyhow::Context;

    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB")).context("Linux tells VmHWM")?;
    Ok(Some(kib.parse::<f64>()? / 1024.0))
}

#[cfg(not(target_os = "linux"))]
fn peak_rss_mib(_process: &Process) -> anyhow::Result<Option<f64>> {
    Ok(None)
}

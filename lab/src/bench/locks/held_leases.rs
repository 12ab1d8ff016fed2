//! Many leases that one process holds and renews, in any lock service.

use std::{
    fmt,
    io::{self, BufRead},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::Args;
use fence::ResourceName;
use futures_util::TryStreamExt;
use lock_client::{Lease, Ttl};
use lock_client_cli::HeldLocks;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use testbed::process::Process;
use tokio::{task::JoinSet, time::sleep};

use super::service::Service;
use crate::bench::work::Work;

/// How long the process may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// How many leases are acquired at once. With more, requests would time out behind others.
const AT_ONCE: usize = 100;
/// What the names of the locks begin with.
const PREFIX: &str = "crowd/";

/// Acquires leases and renews them, and reports on demand how many it still holds.
#[derive(Args, Debug)]
pub struct HoldLeases {
    /// The URL of the lock service
    #[arg(long)]
    locks: String,
    #[arg(long)]
    leases: usize,
    #[arg(long)]
    ttl_ms: u64,
}

impl HoldLeases {
    /// Prints a line when it holds all leases. Then it answers each line on stdin with the number
    /// of leases that it still believes to hold, and with the number of its connections.
    ///
    /// # Errors
    /// If a lease can't be acquired.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let sockets_before = sockets()?;
        let service = HeldLocks::open(vec![self.locks])?;
        let ttl = Ttl::new(Duration::from_millis(self.ttl_ms))?;
        let mut leases: Vec<Lease> = Vec::new();
        while leases.len() < self.leases {
            let mut acquiring = JoinSet::new();
            for n in leases.len()..self.leases.min(leases.len() + AT_ONCE) {
                let (locks, name) = (service.locks().clone(), format!("{PREFIX}{n}"));
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
            let relied_on = leases.iter().filter(|lease| lease.token().is_ok()).count();
            let connections = sockets()?.saturating_sub(sockets_before);
            let held = Held { relied_on, connections, peak_rss_mib: peak_rss_mib()? };
            println!("{}", serde_json::to_string(&held)?);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What the process answers.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Held {
    /// The number of leases that it believes to hold.
    relied_on: usize,
    /// Its connections; 0 except on Linux, and on SQLite.
    connections: usize,
    /// The most memory that it ever used; known only on Linux.
    pub(super) peak_rss_mib: Option<f64>,
}

/// How the leases fared.
#[derive(Debug, Serialize)]
pub(super) struct HeldLeases {
    leases: usize,
    ttl_ms: u64,
    held_for_ms: u64,
    /// The number of locks that the service has at the end.
    taken: usize,
    /// The requests for all of them; none if the service does not count them.
    requests_per_second: Option<f64>,
    #[serde(flatten)]
    pub(super) held: Held,
}

impl HeldLeases {
    /// Lets a process hold leases for some time. `requests` are what counts of the service's work.
    pub(super) async fn measure(
        service: &dyn Service,
        leases: usize,
        ttl: Duration,
        held_for: Duration,
        requests: impl Fn(&Work) -> u64,
    ) -> anyhow::Result<Self> {
        let url = &service.url();
        let folder = TempDir::with_prefix("fenced-")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["hold-leases", "--locks", url]);
        command.args(["--leases", &leases.to_string()]);
        command.args(["--ttl-ms", &ttl.as_millis().to_string()]);
        let mut process = Process::spawn("hold-leases", &command, folder.path())?;
        let acquired: usize = process.line(ANSWER_TIMEOUT).await?.parse()?;
        ensure!(acquired == leases, "the process acquired {acquired} leases instead of {leases}");

        let before = service.work().await?;
        sleep(held_for).await;
        let after = service.work().await?;
        process.write_line("how many")?;
        let held = serde_json::from_str(&process.line(ANSWER_TIMEOUT).await?)?;
        let names = HeldLocks::open(vec![url.to_owned()])?.names(PREFIX);
        let pages: Vec<Vec<ResourceName>> = names.try_collect().await?;
        Ok(Self {
            leases,
            ttl_ms: ttl.as_millis().try_into()?,
            held_for_ms: held_for.as_millis().try_into()?,
            taken: pages.iter().map(Vec::len).sum(),
            requests_per_second: after
                .zip(before)
                .map(|(after, before)| requests(&after.since(&before)))
                .map(|requests| requests as f64 / held_for.as_secs_f64()),
            held,
        })
    }

    /// The part of the leases that both the service and the process have.
    pub(super) fn part_held(&self) -> f64 {
        self.taken.min(self.held.relied_on) as f64 / self.leases as f64
    }
}

impl fmt::Display for HeldLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { leases, ttl_ms, held_for_ms, taken, requests_per_second, held } = self;
        let Held { relied_on, connections, peak_rss_mib } = held;
        writeln!(
            f,
            "{leases} leases of {ttl_ms} ms in one process: after {held_for_ms} ms, the service has \
             {taken} locks and the process relies on {relied_on} leases"
        )?;
        let known =
            |figure: Option<f64>| figure.map_or("unknown".to_owned(), |n| format!("{n:.1}"));
        writeln!(
            f,
            "connections: {connections}; requests per second: {}; peak memory in MiB: {}",
            known(*requests_per_second),
            known(*peak_rss_mib)
        )
    }
}

/// The number of sockets that this process has open.
#[cfg(target_os = "linux")]
fn sockets() -> io::Result<usize> {
    let mut sockets = 0;
    for descriptor in std::fs::read_dir("/proc/self/fd")? {
        // The folder itself is among them, and closed by now.
        let target = std::fs::read_link(descriptor?.path()).unwrap_or_default();
        sockets += usize::from(target.to_string_lossy().starts_with("socket:"));
    }
    Ok(sockets)
}

#[cfg(not(target_os = "linux"))]
fn sockets() -> io::Result<usize> {
    Ok(0)
}

#[cfg(target_os = "linux")]
fn peak_rss_mib() -> anyhow::Result<Option<f64>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    Ok(Some(kib.context("the system shows no peak memory")?.parse::<f64>()? / 1024.0))
}

#[cfg(not(target_os = "linux"))]
fn peak_rss_mib() -> anyhow::Result<Option<f64>> {
    Ok(None)
}

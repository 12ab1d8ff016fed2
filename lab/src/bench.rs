//! Benches: they compare every figure with another one of the same run.
//!
//! A bench is a list of subjects, which are measured in turn in rounds, and a report of their figures
//! and goals. `subject.rs` and `report.rs` are what all benches share; start there.

mod etcd;
mod fence;
mod goal;
mod load;
mod locks;
mod null_server;
mod peer;
mod redlock;
mod report;
mod storage;
mod subject;
mod work;

use std::process::ExitCode;

use clap::Subcommand;

pub use locks::HoldLeases;
pub use null_server::serve_nothing;

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Fenced writes per second over HTTP, next to HTTP alone and unfenced writes into PostgreSQL
    ///
    /// Needs wrk, PostgreSQL with pgbench, and etcd.
    Storage(storage::StorageBench),
    /// What the fence costs inside PostgreSQL and MariaDB, next to the same statements without it
    ///
    /// Needs PostgreSQL with pgbench, and MariaDB.
    Fence(fence::FenceBench),
    /// How long locks of each lock service take, next to the least that it can do and to other clients
    ///
    /// Needs the measured lock services, and Python with the packages redis and kazoo (`make python`).
    /// strace adds figures with slow commits, on Linux (`make strace`).
    Locks(locks::LocksBench),
    /// How long locks on a majority of Redis nodes take, next to the crate rslock
    ///
    /// Measures with all nodes up, and while one of them hangs. Needs Redis.
    Redlock(redlock::RedlockBench),
}

impl Bench {
    /// Runs the bench and prints its figures.
    ///
    /// # Errors
    /// If the bench can't be run.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Storage(bench) => bench.run().await?,
            Self::Fence(bench) => bench.run().await?,
            Self::Locks(bench) => bench.run().await?,
            Self::Redlock(bench) => bench.run().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

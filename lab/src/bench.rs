//! Benches: every figure beside something else that was measured in the same run.

mod fence;
mod line;
mod load;
mod locks;
mod nothing;
mod peer;
mod redlock;
mod samples;
mod storage;
mod target;
mod work;

use std::process::ExitCode;

use clap::Subcommand;

pub use locks::HoldLeases;
pub use nothing::serve_nothing;

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Fenced writes per second over HTTP, beside the HTTP alone and unfenced writes into PostgreSQL
    ///
    /// Needs wrk and PostgreSQL with pgbench.
    Storage(storage::StorageBench),
    /// What the fence costs inside PostgreSQL, beside the same statements without it
    ///
    /// Needs PostgreSQL with pgbench.
    Fence(fence::FenceBench),
    /// What locks in Redis take, beside a PING, the crate rslock, and the Lock of the Python client redis
    ///
    /// Needs Redis, and Python with the client (`make python`).
    Locks(locks::LocksBench),
    /// What locks on a majority of Redis nodes take, beside the crate rslock, with one that hangs, too
    ///
    /// Needs Redis.
    Redlock(redlock::RedlockBench),
}

impl Bench {
    /// Runs the bench and prints its figures.
    ///
    /// # Errors
    /// If it can't be run.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Storage(bench) => bench.run().await,
            Self::Fence(bench) => bench.run().await,
            Self::Locks(bench) => bench.run().await,
            Self::Redlock(bench) => bench.run().await,
        }
    }
}

fn at_least_one(count: &str) -> Result<usize, String> {
    match count.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("a whole number from 1".to_owned()),
    }
}

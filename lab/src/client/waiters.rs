//! Many clients that wait for one lock, each over connections of its own.

use std::{process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use fence::ResourceName;
use lock_client::{Locks, Terms, Ttl, redis::Redis};
use serde_json::json;
use tokio::{task::JoinSet, time::sleep};

use super::steps::print;
use testbed::open_files;

/// How long they wait at most.
const WAIT: Duration = Duration::from_secs(60);

/// What waiters are to do.
#[derive(Args, Debug)]
pub struct Waiters {
    /// The lock's name
    lock: ResourceName,
    #[arg(long, value_name = "URL")]
    redis: String,
    #[arg(long, value_name = "MILLISECONDS")]
    ttl_ms: u64,
    /// How many they are
    #[arg(long)]
    count: u64,
    /// For how long each works, once it has the lock
    #[arg(long, value_name = "MILLISECONDS")]
    work_ms: u64,
    #[arg(long)]
    order: Order,
}

/// In which order they get the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// None: all are woken when it is free.
    WokenAtOnce,
    /// That of their coming: the first is woken.
    Fair,
}

impl Waiters {
    /// Has all of them ask for the lock at once, work and release it, and prints a JSON line when all
    /// have had it.
    ///
    /// # Errors
    /// If Redis fails, or one of them doesn't get the lock within a minute.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        open_files::raise_limit();
        let ttl = Ttl::new(Duration::from_millis(self.ttl_ms))?;
        let terms = Terms::new(ttl).wait(WAIT).without_renewal();
        let terms = match self.order {
            Order::WokenAtOnce => terms,
            Order::Fair => terms.fair(),
        };
        let work = Duration::from_millis(self.work_ms);
        let mut waiters = JoinSet::new();
        for _ in 0..self.count {
            // A client of its own: those of one client would ask one after the other.
            let locks = Locks::new(Redis::open(&self.redis)?);
            let lock = self.lock.clone();
            waiters.spawn(async move {
                let lease = locks.acquire(&lock, terms).await?;
                sleep(work).await;
                lease.release().await?;
                anyhow::Ok(())
            });
        }
        let mut handovers = 0;
        while let Some(served) = waiters.join_next().await {
            served??;
            handovers += 1;
        }
        print(&json!({"event": "handed-over", "handovers": handovers}));
        Ok(ExitCode::SUCCESS)
    }
}

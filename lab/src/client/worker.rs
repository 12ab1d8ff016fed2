//! A client of a lock that takes it, works and gives it back, in the ways that are found everywhere,
//! or with the lock client. The scenarios drive it, as a process of its own, step by step.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::{Args, ValueEnum};
use fence::ResourceName;
use lock_client::{AcquireError, Lease, Locks, Terms, Ttl};
use redis::{AsyncCommands, ExistenceCheck, SetExpiry, SetOptions, aio::MultiplexedConnection};
use serde_json::json;
use tokio::time::sleep;

use super::{
    BUSY,
    steps::{print, release, step},
};

/// How long one that waits for a lock of the naive kind pauses between two tries.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What a worker is to do.
#[derive(Args, Debug)]
pub struct Worker {
    /// The lock's name
    lock: ResourceName,
    /// Who this is: what it sets the lock to, where it sets it itself
    #[arg(long, value_name = "NAME")]
    name: String,
    #[arg(long, value_name = "URL")]
    redis: String,
    #[arg(long, value_name = "MILLISECONDS")]
    ttl_ms: u64,
    /// How long to wait for the lock
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    wait_ms: u64,
    #[arg(long)]
    way: Way,
}

/// A way to take a lock and to give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// SETNX, then EXPIRE; DEL.
    SetnxThenExpire,
    /// SET with NX and PX; DEL.
    Del,
    /// SET with NX and PX; GET, and DEL if it is one's own.
    GetThenDel,
    /// One script each: the lock client, whose lease ends with its ttl.
    Scripts,
    /// The same, and the lease is renewed.
    ScriptsAndRenewal,
}

impl Worker {
    /// Takes the lock, works and gives it back; prints each step as a JSON line, and waits for a line
    /// on stdin before it goes on. While it waits for the lock, it waits for no line.
    ///
    /// # Errors
    /// If the lock or stdin fails.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let worked = match self.way {
            Way::Scripts | Way::ScriptsAndRenewal => self.work_with_lock_client().await?,
            _ => self.work_naively().await?,
        };
        Ok(if worked { ExitCode::SUCCESS } else { ExitCode::from(BUSY) })
    }

    async fn work_with_lock_client(&self) -> anyhow::Result<bool> {
        let Some(lease) = self.lease().await? else {
            return Ok(false);
        };
        let token = lease.token()?;
        step(&json!({"event": "acquired", "token": token, "ttl_ms": self.ttl_ms})).await?;
        step(&json!({"event": "worked"})).await?;
        print(&release(lease).await?);
        Ok(true)
    }

    /// The lease, or `None` if somebody else has kept the lock for as long as this waits.
    async fn lease(&self) -> anyhow::Result<Option<Lease>> {
        let locks = Locks::new(lock_client::redis::Redis::open(&self.redis)?);
        let ttl = Ttl::new(Duration::from_millis(self.ttl_ms))?;
        let terms = match self.way {
            Way::ScriptsAndRenewal => Terms::new(ttl),
            _ => Terms::new(ttl).without_renewal(),
        };
        match locks.acquire(&self.lock, terms.no_wait()).await {
            Err(AcquireError::Contended { .. }) => self.busy(),
            answer => return Ok(Some(answer?)),
        }
        let wait = Duration::from_millis(self.wait_ms);
        match locks.acquire(&self.lock, terms.wait(wait)).await {
            Err(AcquireError::Contended { .. }) => {
                print(&json!({"event": "gave-up", "waited_ms": self.wait_ms}));
                Ok(None)
            }
            answer => Ok(Some(answer?)),
        }
    }

    /// Tells that it waits, if it does.
    fn busy(&self) {
        if self.wait_ms > 0 {
            print(&json!({"event": "busy"}));
        }
    }

    async fn work_naively(&self) -> anyhow::Result<bool> {
        let client = redis::Client::open(self.redis.as_str())?;
        let mut redis = client.get_multiplexed_async_connection().await?;
        if !self.take_naively(&mut redis).await? {
            return Ok(false);
        }
        step(&json!({"event": "acquired", "ttl_ms": self.ttl_ms})).await?;
        step(&json!({"event": "worked"})).await?;
        self.give_back_naively(&mut redis).await?;
        Ok(true)
    }

    async fn take_naively(&self, redis: &mut MultiplexedConnection) -> anyhow::Result<bool> {
        let begun = Instant::now();
        let mut busy = false;
        while !self.set_if_free(redis).await? {
            if !busy {
                self.busy();
                busy = true;
            }
            if begun.elapsed() >= Duration::from_millis(self.wait_ms) {
                print(&json!({"event": "gave-up", "waited_ms": self.wait_ms}));
                return Ok(false);
            }
            sleep(POLL_INTERVAL).await;
        }
        if self.way == Way::SetnxThenExpire {
            step(&json!({"event": "set-without-expiry"})).await?;
            let ttl_ms = self.ttl_ms.try_into()?;
            let () = redis.pexpire(key(&self.lock), ttl_ms).await?;
        }
        Ok(true)
    }

    async fn set_if_free(&self, redis: &mut MultiplexedConnection) -> anyhow::Result<bool> {
        let options = SetOptions::default().conditional_set(ExistenceCheck::NX);
        let options = match self.way {
            Way::SetnxThenExpire => options,
            _ => options.with_expiration(SetExpiry::PX(self.ttl_ms)),
        };
        let set: Option<String> = redis
            .set_options(key(&self.lock), &self.name, options)
            .await
            .context("can't set the lock")?;
        Ok(set.is_some())
    }

    async fn give_back_naively(&self, redis: &mut MultiplexedConnection) -> anyhow::Result<()> {
        if self.way == Way::GetThenDel {
            let owner: Option<String> = redis.get(key(&self.lock)).await?;
            if owner.as_ref() != Some(&self.name) {
                print(&json!({"event": "lease-lost"}));
                return Ok(());
            }
            step(&json!({"event": "compared", "owner": owner})).await?;
        }
        let deleted: u64 = redis.del(key(&self.lock)).await?;
        print(&json!({"event": "deleted", "keys": deleted}));
        Ok(())
    }
}

/// The key of a naive lock: what it holds is its owner's name.
pub(crate) fn key(lock: &ResourceName) -> String {
    format!("lock:{lock}")
}

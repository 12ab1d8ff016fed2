//! A client of a storage server under a Redlock as it is often made: with no token, so that the storage
//! has nothing to check. The scenarios drive it, as a process of its own, step by step.
//!
//! One way is the crate rslock, as it is. The others are nobody's code: Redlock as it is described, by
//! somebody who has left out one of its rules, which is named there.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};
use fence::{Holder, ResourceName};
use futures_util::future::join_all;
use lock_client::storage::Storage;
use redis::{
    AsyncCommands, Client, ExistenceCheck, Script, SetExpiry, SetOptions,
    aio::MultiplexedConnection,
};
use rslock::LockManager;
use serde_json::json;

use super::{
    BUSY,
    steps::{print, step},
    worker::key,
};

/// The last step of a client that too few nodes gave the lock.
pub(crate) const NO_MAJORITY: &str = "no-majority";

/// What a client of a Redlock without tokens is to do.
#[derive(Args, Debug)]
pub struct NaiveRedlock {
    resource: ResourceName,
    /// What to write
    value: String,
    #[arg(long, value_name = "URL", required = true)]
    redis: Vec<String>,
    #[arg(long, value_name = "URL")]
    storage: String,
    #[arg(long, value_name = "MILLISECONDS")]
    ttl_ms: u64,
    #[arg(long)]
    way: Way,
}

/// A way to lock several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// The crate rslock.
    Rslock,
    /// A majority of the nodes that answer is enough. It has to be one of all nodes.
    MajorityOfAnswers,
    /// Without a majority, it releases where it was given the lock. It has to release everywhere.
    ReleaseWhereGranted,
}

/// A lock that was given, and how to give it back.
enum Held {
    Rslock(rslock::Lock),
    Own { value: String, nodes: Vec<MultiplexedConnection> },
}

impl NaiveRedlock {
    /// Takes the lock, reads, checks how long it has it, writes and gives it back; prints each step as
    /// a JSON line, and waits for a line on stdin before it goes on.
    ///
    /// # Errors
    /// If the storage or stdin fails.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let begun = Instant::now();
        let Some(held) = self.lock().await? else {
            print(&json!({"event": NO_MAJORITY}));
            return Ok(ExitCode::from(BUSY));
        };
        step(&json!({"event": "acquired", "ttl_ms": self.ttl_ms})).await?;

        let before = Storage::new(&self.storage)?.read(&self.resource).await?;
        let before = before.map(|value| String::from_utf8_lossy(&value.bytes).into_owned());
        step(&json!({"event": "read", "value": before, "claimed": false})).await?;

        let ttl = Duration::from_millis(self.ttl_ms);
        let remaining_ms: u64 = ttl.saturating_sub(begun.elapsed()).as_millis().try_into()?;
        step(&json!({"event": "lease-checked", "remaining_ms": remaining_ms})).await?;

        self.write().await?;
        step(&json!({"event": "written", "value": self.value})).await?;
        match held {
            Held::Rslock(lock) => lock.release().await,
            Held::Own { value, nodes } => self.unlock(&value, nodes).await,
        }
        print(&json!({"event": "released"}));
        Ok(ExitCode::SUCCESS)
    }

    /// Takes the lock, if it is free.
    async fn lock(&self) -> anyhow::Result<Option<Held>> {
        if self.way == Way::Rslock {
            let manager = LockManager::new(self.redis.clone());
            let (key, ttl) = (key(&self.resource), Duration::from_millis(self.ttl_ms));
            return Ok(manager.lock(&*key, ttl).await.ok().map(Held::Rslock));
        }
        let value = Holder::random().as_str().to_owned();
        let answers = join_all(self.redis.iter().map(|url| self.lock_at(url, &value))).await;
        let answered = answers.iter().filter(|answer| answer.is_ok()).count();
        let granted: Vec<_> = answers.into_iter().filter_map(Result::ok).flatten().collect();
        let of = if self.way == Way::MajorityOfAnswers { answered } else { self.redis.len() };
        if granted.len() > of / 2 {
            return Ok(Some(Held::Own { value, nodes: granted }));
        }
        self.unlock(&value, granted).await;
        Ok(None)
    }

    /// Takes the lock at one node: the connection, if that gave it.
    async fn lock_at(
        &self,
        url: &str,
        value: &str,
    ) -> anyhow::Result<Option<MultiplexedConnection>> {
        let mut node = Client::open(url)?.get_multiplexed_async_connection().await?;
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::PX(self.ttl_ms));
        let set: Option<String> = node.set_options(key(&self.resource), value, options).await?;
        Ok(set.map(|_| node))
    }

    async fn unlock(&self, value: &str, nodes: Vec<MultiplexedConnection>) {
        let compare_and_delete = Script::new(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end",
        );
        let key = key(&self.resource);
        for mut node in nodes {
            let mut call = compare_and_delete.key(&key);
            // A node that doesn't answer frees the lock after the ttl.
            let _: Option<()> = call.arg(value).invoke_async(&mut node).await.ok();
        }
    }

    /// Writes with no token, which the storage has to be one for that checks none.
    async fn write(&self) -> anyhow::Result<()> {
        let url = format!("{}/v1/resources/{}", self.storage, self.resource);
        let request = reqwest::Client::new().put(url).header("Content-Type", "text/plain");
        request.body(self.value.clone()).send().await?.error_for_status()?;
        Ok(())
    }
}

//! A worker that updates a shared value: a fenced read-modify-write.
//!
//! Start as many as you like, on any machines. No update is lost, even if a worker is paused for
//! longer than its lease lasts:
//!
//! ```sh
//! export FENCED_LOCKS=redis://127.0.0.1 FENCED_STORAGE=http://127.0.0.1:8034
//! cargo run -p lock-client --features storage --example worker -- 100
//! ```
//!
//! The argument is how often to add one to the value of the resource `visits`.

use std::env;

use anyhow::Context;
use fence::ResourceName;
use lock_client::{
    Locks, Ttl,
    redis::Redis,
    storage::{FencedError, FencedResource, Storage, Value},
};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = Locks::new(Redis::open(&env::var("FENCED_LOCKS")?)?);
    let storage = Storage::new(&env::var("FENCED_STORAGE")?)?;
    let visits = "visits".parse()?;
    let times: u32 = env::args().nth(1).context("name the number of updates")?.parse()?;
    for _ in 0..times {
        let count = update(&locks, &storage, &visits).await?;
        println!("{visits}: {count}");
    }
    Ok(())
}

/// Adds one to the value under its lock. Starts again whenever the lease was lost.
async fn update(locks: &Locks, storage: &Storage, name: &ResourceName) -> anyhow::Result<u64> {
    loop {
        // 1. Acquire the lock. The lease renews itself until it is released.
        let lease = locks.acquire(name, Ttl::from_secs(10)?).await?;
        // 2. Read, compute, write: each request carries the lease's token.
        match add_one(&storage.under(&lease, name)).await {
            Ok(count) => {
                // 3. Release. If this fails, the value is written all the same, and the lock is
                //    free after its ttl.
                if let Err(error) = lease.release().await {
                    eprintln!("{error}");
                }
                return Ok(count);
            }
            // The lease was lost, and nothing was written. What was read is void, because another
            // worker may have written since: start again.
            Err(error @ FencedError::Lost { .. }) => eprintln!("{error}; starting again"),
            Err(error) => return Err(error.into()),
        }
    }
}

async fn add_one(resource: &FencedResource) -> Result<u64, FencedError> {
    // The read claims: from here on, the storage rejects older tokens.
    let mut before = resource.read().await?;
    loop {
        let count = count(before.as_ref()) + 1;
        match resource.write("text/plain", count.to_string()).await {
            Ok(_) => return Ok(count),
            // The write may have been carried out. Another read shows it. If it was not, that read
            // makes the storage reject it, so that it can't be carried out later.
            Err(FencedError::Unknown(_)) => {
                let now = resource.read().await?;
                if version(now.as_ref()) > version(before.as_ref()) {
                    return Ok(count);
                }
                before = now;
            }
            Err(error) => return Err(error),
        }
    }
}

fn count(value: Option<&Value>) -> u64 {
    let text = value.map(|value| String::from_utf8_lossy(&value.bytes));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn version(value: Option<&Value>) -> u64 {
    value.map_or(0, |value| value.version)
}

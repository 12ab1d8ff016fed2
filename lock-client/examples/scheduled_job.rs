//! A job that cron starts on several machines at the same time, and that only one of them runs.
//!
//! ```sh
//! export FENCED_LOCKS=redis://127.0.0.1
//! cargo run -p lock-client --example scheduled_job -- "$(date +%F)"
//! ```
//!
//! The argument names the run, here its day. The first machine runs the job and then leaves the
//! lock held, so that a machine whose clock is late doesn't run the job again. If the job fails,
//! the next machine that starts it may run it; if the machine crashes, that is once the ttl has
//! ended. So a job may begin twice. If that would do harm, send the token with each write.

use std::{
    env,
    time::{Duration, Instant},
};

use anyhow::Context;
use fence::Token;
use lock_client::{AcquireError, Locks, Lost, Terms, Ttl, redis::Redis};
use tokio::time::sleep;

/// How much the machines' clocks may differ, and how late cron may start the job.
const TOLERANCE: Duration = Duration::from_secs(60 * 60);
/// Each run has a lock of its own name. Redis forgets it after this time.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let redis = Redis::open(&env::var("FENCED_LOCKS")?)?.keep_counters_for(RETENTION);
    let locks = Locks::new(redis);
    let run = env::args().nth(1).context("name the run, such as 2026-11-21")?;
    let name = format!("nightly-report/{run}").parse()?;

    // 1. Acquire the lock of this run, if it is free. While the job runs, the lease renews itself.
    let terms = Terms::new(Ttl::new(TOLERANCE)?).no_wait().detachable();
    let lease = match locks.acquire(&name, terms).await {
        Ok(lease) => lease,
        Err(AcquireError::Contended { .. }) => {
            println!("{run}: another machine runs the job, or has run it");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    // 2. Run the job, until it ends or the lease is lost. If the job fails, the lock is released,
    //    and another machine may try.
    let began = Instant::now();
    tokio::select! {
        result = job(lease.token()?) => result?,
        () = lease.lost() => return Err(Lost { lock: name }.into()),
    }
    println!("{run}: done in {:.1?}", began.elapsed());
    // 3. Leave the lock held for its full ttl.
    lease.renew().await?;
    lease.detach()?;
    Ok(())
}

/// The job itself.
async fn job(token: Token) -> anyhow::Result<()> {
    println!("writing the report with token {token}");
    sleep(Duration::from_millis(200)).await;
    Ok(())
}

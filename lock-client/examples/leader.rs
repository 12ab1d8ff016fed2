//! A service of which one replica works, the leader, and the others wait to replace it.
//!
//! Start it several times, and kill the leader. Another replica then leads, once the ttl has ended:
//!
//! ```sh
//! export FENCED_LOCKS=redis://127.0.0.1
//! cargo run -p lock-client --example leader -- replica-1
//! ```
//!
//! A leader that was paused may work for a moment after its lease has ended, beside its successor.
//! So it sends its token with everything that it writes, and the storage rejects the older token.

use std::{env, time::Duration};

use anyhow::Context;
use lock_client::{AcquireError, Lease, Locks, Lost, Terms, Ttl, WithError, redis::Redis};
use tokio::time::sleep;

/// How long the service is without a leader after the leader has crashed.
const TTL: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let locks = Locks::new(Redis::open(&env::var("FENCED_LOCKS")?)?);
    let replica = env::args().nth(1).context("name the replica")?;
    let leadership = "leader-of-example".parse()?;
    // Fair: the replica that has waited longest leads next.
    let terms = Terms::new(Ttl::new(TTL)?).fair();
    loop {
        // 1. Wait to lead, and lead for as long as the lease lasts. Then `with` cancels the work.
        println!("{replica}: waiting");
        let led = locks.with(&leadership, terms, |lease| lead(&replica, lease)).await;
        match led {
            Ok(()) => return Ok(()),
            // 2. The lease was lost: wait for the next turn.
            Err(WithError::Lost(lost) | WithError::Body(lost)) => println!("{replica}: {lost}"),
            // 3. The lock service can't be reached: try again.
            Err(WithError::Acquire(error @ AcquireError::Unavailable { .. })) => {
                eprintln!("{replica}: {:#}", anyhow::Error::from(error));
                sleep(STEP).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The leader's work, in steps. A real leader ends by returning `Ok`; this one goes on until it is
/// killed.
async fn lead(replica: &str, lease: Lease) -> Result<(), Lost> {
    println!("{replica}: leading with token {}", lease.token()?);
    loop {
        // The token is an error once the lease has ended. Send it with everything that is written.
        let _token = lease.token()?;
        sleep(STEP).await;
    }
}

//! What a holder does while it holds the lock.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

/// Long enough for the previous holder to wait again, and so short that the code of a handover
/// stays in the processor's caches.
pub(super) const HOLD: Duration = Duration::from_millis(1);
/// The same if every release makes all clients ask Redis again.
pub(super) const CROWDED_HOLD: Duration = Duration::from_millis(10);
/// The time of an idle holder: long enough for this process and Redis to go to sleep.
pub(super) const PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Debug)]
pub(super) enum Hold {
    /// Sends PINGs for this long, so that neither this process nor Redis goes to sleep. The
    /// handover is then comparable with a PING among many.
    Busy(Duration, MultiplexedConnection),
    /// Sleeps for [`PAUSE`]. The handover is then comparable with a PING after a pause, because
    /// both have to wake this process and Redis.
    Idle,
}

impl Hold {
    pub(super) async fn pass(&self) -> anyhow::Result<()> {
        match self {
            Self::Busy(time, connection) => {
                let mut connection = connection.clone();
                let begun = Instant::now();
                while begun.elapsed() < *time {
                    redis::cmd("PING").exec_async(&mut connection).await?;
                }
            }
            Self::Idle => sleep(PAUSE).await,
        }
        Ok(())
    }
}

//! What a holder does while it holds the lock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::time::sleep;

/// Long enough for the previous holder to wait again, and so short that the code of a handover
/// stays in the processor's caches.
pub(super) const HOLD: Duration = Duration::from_millis(1);
/// The same if every release makes all clients ask the server again.
pub(super) const CROWDED_HOLD: Duration = Duration::from_millis(10);
/// The time of an idle holder: long enough for this process and the server to go to sleep.
pub(super) const PAUSE: Duration = Duration::from_millis(5);

/// What all holders do, one after the other.
#[async_trait]
pub(super) trait Hold: Send + Sync {
    /// Passes the time of one holder.
    async fn pass(&self) -> anyhow::Result<()>;
}

/// A connection over which a holder can be busy.
#[async_trait]
pub(super) trait RoundTrip: Send + Sync {
    /// Sends a request that changes nothing, and waits for its answer.
    async fn round_trip(&self) -> anyhow::Result<()>;
}

/// Sends requests for this long, so that neither this process nor the server goes to sleep. The
/// handover is then comparable with a round trip among many.
pub(super) struct Busy<C: ?Sized>(pub(super) Duration, pub(super) Arc<C>);

#[async_trait]
impl<C: RoundTrip + ?Sized> Hold for Busy<C> {
    async fn pass(&self) -> anyhow::Result<()> {
        let Self(time, connection) = self;
        let begun = Instant::now();
        while begun.elapsed() < *time {
            connection.round_trip().await?;
        }
        Ok(())
    }
}

/// Sleeps for [`PAUSE`]. The handover is then comparable with a round trip after a pause, because
/// both have to wake this process and the server.
pub(super) struct Idle;

#[async_trait]
impl Hold for Idle {
    async fn pass(&self) -> anyhow::Result<()> {
        sleep(PAUSE).await;
        Ok(())
    }
}

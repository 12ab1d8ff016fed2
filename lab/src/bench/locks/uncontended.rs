//! What locks take that nobody else wants.

use std::time::{Duration, Instant};

use fence::ResourceName;
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use super::handover::PAUSE;
use crate::bench::{
    peer::{self, Peer},
    samples::Samples,
    work::{Meter, Work},
};

/// Sends PING so many times, one after the other.
pub(super) async fn pings(
    connection: &mut MultiplexedConnection,
    count: usize,
    meter: &mut Meter,
) -> anyhow::Result<(Samples, Work)> {
    pings_each_after(Duration::ZERO, connection, count, meter).await
}

/// Sends PING so many times, each after as long a pause as a holder makes before it releases: what
/// had gone to sleep meanwhile has to wake up.
pub(super) async fn pings_after_pauses(
    connection: &mut MultiplexedConnection,
    count: usize,
    meter: &mut Meter,
) -> anyhow::Result<(Samples, Work)> {
    pings_each_after(PAUSE, connection, count, meter).await
}

async fn pings_each_after(
    pause: Duration,
    connection: &mut MultiplexedConnection,
    count: usize,
    meter: &mut Meter,
) -> anyhow::Result<(Samples, Work)> {
    let before = meter.read().await?;
    let mut samples = Samples::default();
    for _ in 0..count {
        if !pause.is_zero() {
            sleep(pause).await;
        }
        let begun = Instant::now();
        redis::cmd("PING").exec_async(connection).await?;
        samples.add(begun.elapsed());
    }
    Ok((samples, meter.read().await?.since(&before)))
}

/// Acquires and releases a lock of each name, one after the other.
pub(super) async fn cycles<P: Peer>(
    peer: &P,
    names: &[ResourceName],
    meter: &mut Meter,
) -> anyhow::Result<(Samples, Work)> {
    let before = meter.read().await?;
    let samples = peer::cycles(peer, names).await?;
    Ok((samples, meter.read().await?.since(&before)))
}

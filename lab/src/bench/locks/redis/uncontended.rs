//! Locks that nobody else wants, and the PINGs that they are compared with.

use std::time::{Duration, Instant};

use fence::ResourceName;
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use crate::bench::{
    peer::{self, Peer},
    series::Part,
    work::Meter,
};

/// Sends PINGs, each after a pause. A pause like that of an idle holder lets this process and Redis
/// go to sleep, so that both have to wake up.
pub(super) async fn pings(
    pause: Duration,
    connection: &mut MultiplexedConnection,
    count: usize,
    meter: &mut Meter,
) -> anyhow::Result<Part> {
    let before = meter.read().await?;
    let mut times = Vec::new();
    for _ in 0..count {
        if !pause.is_zero() {
            sleep(pause).await;
        }
        let begun = Instant::now();
        redis::cmd("PING").exec_async(connection).await?;
        times.push(begun.elapsed());
    }
    Ok(Part { times, work: meter.read().await?.since(&before) })
}

/// Acquires and releases a lock of each name, one after the other.
pub(super) async fn cycles<P: Peer>(
    peer: &P,
    names: &[ResourceName],
    meter: &mut Meter,
) -> anyhow::Result<Part> {
    let before = meter.read().await?;
    let times = peer::cycles(peer, names).await?;
    Ok(Part { times, work: meter.read().await?.since(&before) })
}

//! Waiting for conditions instead of sleeping.

use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::time::{sleep, timeout};

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Returns the pause before the next check. It grows: whoever has waited for seconds loses little by
/// some milliseconds more, and many who check at once take the processor from what they wait for.
fn pause(begun: Instant) -> Duration {
    (begun.elapsed() / 8).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

/// Waits until a condition holds, and checks it every 5 ms at first, and later every 50 ms.
///
/// # Errors
/// If the condition doesn't hold within the time, or fails.
pub async fn until(
    within: Duration,
    mut condition: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !condition()? {
        if begun.elapsed() > within {
            bail!("it took longer than {within:?}");
        }
        sleep(pause(begun)).await;
    }
    Ok(())
}

/// Waits until an asynchronous condition holds, such as one that asks a server.
///
/// # Errors
/// If the condition doesn't hold within the time, or fails.
pub async fn until_async<F: Future<Output = anyhow::Result<bool>>>(
    within: Duration,
    mut condition: impl FnMut() -> F,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let polling = async {
        while !condition().await? {
            sleep(pause(begun)).await;
        }
        Ok(())
    };
    timeout(within, polling).await.unwrap_or_else(|_| bail!("it took longer than {within:?}"))
}

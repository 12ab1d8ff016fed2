//! Waiting for conditions instead of sleeping.

use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::time::{sleep, timeout};

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until a condition holds, and checks it every 5 ms.
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
        sleep(POLL_INTERVAL).await;
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
    let polling = async {
        while !condition().await? {
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    };
    timeout(within, polling).await.unwrap_or_else(|_| bail!("it took longer than {within:?}"))
}

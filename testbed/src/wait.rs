//! Waiting for conditions, not for time.

use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::time::{sleep, timeout};

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until a condition holds.
///
/// # Errors
/// If it doesn't within the time, or can't be told.
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

/// Waits until a condition holds that somebody else has to be asked about.
///
/// # Errors
/// If it doesn't within the time, or can't be told.
pub async fn until_async<F: Future<Output = anyhow::Result<bool>>>(
    within: Duration,
    mut condition: impl FnMut() -> F,
) -> anyhow::Result<()> {
    let asking = async {
        while !condition().await? {
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    };
    timeout(within, asking).await.unwrap_or_else(|_| bail!("it took longer than {within:?}"))
}

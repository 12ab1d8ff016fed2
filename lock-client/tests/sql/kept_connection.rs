//! The connection that is kept for held locks.

use std::time::Duration;

use anyhow::{Context, ensure};
use lock_client::{Locks, Released, Terms};
use testbed::wait::until_async;
use tokio::time::{sleep, timeout};

use super::SOON;
use crate::{
    lock_service::{lasting, tried, ttl, with_causes},
    names::name,
};

/// Others take all connections of the server, and keep what this returns. A lock that is held is renewed
/// all the same, and released.
pub(crate) async fn holder_needs_no_free_connection<T>(
    locks: &Locks,
    take_all: impl AsyncFnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<()> {
    let lease = locks.acquire(&name("kept"), Terms::new(ttl(4_000)).no_wait()).await?;
    let taken = take_all().await?;
    // A new client is rejected, for certain.
    sleep(Duration::from_secs(6)).await;
    lease.token().context("the lease is lost")?;
    // A try needs another connection. It says why there is none, and does not harm the lease.
    let other = locks.acquire(&name("other"), tried(4_000)).await;
    let error = other.err().context("there is no connection left")?;
    ensure!(with_causes(&error).to_lowercase().contains("too many"), "{error:?}");
    ensure!(lease.release().await? == Released::Released);
    drop(taken);
    Ok(())
}

/// The server hangs for longer than an answer is waited for, while others have all its connections. The
/// one that is kept is not given up.
pub(crate) async fn holder_outlives_a_pause<T>(
    locks: &Locks,
    take_all: impl AsyncFnOnce() -> anyhow::Result<T>,
    pause: impl AsyncFnOnce() -> anyhow::Result<()>,
    resume: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let lease = locks.acquire(&name("paused"), Terms::new(ttl(6_000)).no_wait()).await?;
    let taken = take_all().await?;
    pause().await?;
    sleep(Duration::from_millis(2_500)).await;
    resume()?;
    sleep(Duration::from_secs(6)).await;
    lease.token().context("the lease is lost")?;
    ensure!(lease.release().await? == Released::Released);
    drop(taken);
    Ok(())
}

/// The number of connections of a client that waits for a lock, once it waits for a while. It has had
/// locks before.
pub(crate) async fn connections_of_a_waiter(
    holder: &Locks,
    waiting: &Locks,
    count: impl AsyncFn() -> anyhow::Result<i64>,
) -> anyhow::Result<i64> {
    let terms = Terms::new(ttl(1_000)).detachable();
    waiting.acquire(&name("left"), terms).await?.detach()?;
    waiting.acquire(&name("before"), lasting()).await?.release().await?;
    let lease = holder.acquire(&name("awaited"), lasting()).await?;
    let waiter = tokio::spawn({
        let waiting = waiting.clone();
        async move { waiting.acquire(&name("awaited"), lasting().wait(SOON * 2)).await }
    });
    sleep(Duration::from_secs(4)).await;
    let connections = count().await?;
    lease.release().await?;
    timeout(SOON, waiter).await???.release().await?;
    Ok(connections)
}

/// A connection is cut. It is made again long before the next renewal.
pub(crate) async fn cut_connection_is_made_again(
    locks: &Locks,
    cut: impl AsyncFnOnce() -> anyhow::Result<()>,
    count: impl AsyncFn() -> anyhow::Result<i64>,
) -> anyhow::Result<()> {
    let lease = locks.acquire(&name("cut"), lasting()).await?;
    ensure!(count().await? == 1);
    cut().await?;
    let is_back = async || Ok(count().await? == 1);
    until_async(Duration::from_secs(10), is_back).await.context("there is no connection")?;
    ensure!(lease.release().await? == Released::Released);
    Ok(())
}

/// The connection is cut, and the lock is released before that is noticed.
pub(crate) async fn release_over_a_cut_connection_says_what_was_true(
    locks: &Locks,
    cut: impl AsyncFn() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for _ in 0..3 {
        let lease = locks.acquire(&name("released"), lasting()).await?;
        cut().await?;
        let released = lease.release().await?;
        ensure!(released == Released::Released, "{released:?}");
    }
    Ok(())
}

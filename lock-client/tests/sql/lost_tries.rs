//! Tries that wait in the service, also when nobody waits for them any more.

use anyhow::{Context, ensure};
use fence::Holder;
use lock_client::{Order, backend::Backend};
use testbed::wait::until_async;
use tokio::{task::JoinSet, time::timeout};

use super::{SOON, busy, granted};
use crate::{lock_service::ttl, names::name};

/// A try and its release time out while the service is paused. The service carries out the try after
/// all: then the release follows it, although nobody waits for it any more.
pub(crate) async fn late_try_is_released(
    backend: impl Backend + Clone,
    pause: impl AsyncFnOnce() -> anyhow::Result<()>,
    resume: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (lock, holder) = (name("late"), Holder::random());
    // All connections are made, whichever one the try takes.
    for _ in 0..50 {
        backend.release(&lock, &Holder::random(), None).await?;
    }
    let last = backend.status(&lock).await?.last_token;
    pause().await?;
    let tried = backend.try_acquire(&lock, &holder, ttl(600_000), Order::Unordered).await;
    ensure!(tried.is_err(), "{tried:?}");
    let released = backend.release(&lock, &holder, None).await;
    ensure!(released.is_err(), "{released:?}");
    let observer = backend.clone();
    drop(backend);
    resume()?;
    let is_over = async || {
        let status = observer.status(&lock).await;
        Ok(status.is_ok_and(|status| status.last_token > last && status.held.is_none()))
    };
    until_async(SOON, is_over).await.context("it is not released")
}

/// A try waits for the row of the free lock `overtaken`, which somebody else keeps locked until
/// `unlock`. Its connection is lost, and the service does not notice that. The release that is sent at
/// once follows the try all the same.
pub(crate) async fn release_does_not_overtake_a_lost_try(
    backend: impl Backend + Clone,
    is_waiting: impl AsyncFn() -> anyhow::Result<bool>,
    lose_connections: impl FnOnce(),
    unlock: impl AsyncFnOnce() -> anyhow::Result<()>,
    observer: &impl Backend,
) -> anyhow::Result<()> {
    let (lock, holder) = (name("overtaken"), Holder::random());
    let last = observer.status(&lock).await?.last_token;
    // 1. The connection is lost while the try waits in the service.
    let trying = tokio::spawn({
        let (backend, lock, holder) = (backend.clone(), lock.clone(), holder.clone());
        async move { backend.try_acquire(&lock, &holder, ttl(600_000), Order::Unordered).await }
    });
    until_async(SOON, async || is_waiting().await)
        .await
        .context("the try does not wait for the row")?;
    lose_connections();
    let tried = trying.await?;
    ensure!(tried.is_err(), "{tried:?}");
    // 2. The caller gives up. If the release finds nothing, it ends before the row is unlocked.
    let patience = backend.answer_timeout() / 4;
    let mut releasing = Box::pin(backend.release(&lock, &holder, None));
    let ended = timeout(patience, &mut releasing).await;
    ensure!(!matches!(ended, Ok(Ok(_))), "it has overtaken the try: {ended:?}");
    unlock().await?;
    drop(releasing);
    // 3. The try is granted, and undone.
    let is_over = async || {
        let status = observer.status(&lock).await;
        Ok(status.is_ok_and(|status| status.last_token > last && status.held.is_none()))
    };
    until_async(SOON, is_over).await.context("it is not released")
}

/// A holder in the queue of a lock that was released.
pub(crate) async fn waiter_of_a_free_lock(
    backend: &impl Backend,
    lock: &str,
) -> anyhow::Result<Holder> {
    let (holder, waiter) = (Holder::random(), Holder::random());
    let (token, _) = granted(backend, lock, &holder, 600_000).await?;
    busy(backend, lock, &waiter, Order::Fair).await?;
    backend.release(&name(lock), &holder, Some(token)).await?;
    Ok(waiter)
}

/// Somebody else keeps the rows of the free locks `blocked` and `left` locked, so that tries and the
/// release of a waiter wait for them. Other locks are renewed meanwhile.
pub(crate) async fn renewals_do_not_wait_behind_tries(
    backend: &(impl Backend + Clone),
    waiter: &Holder,
    is_waiting: impl AsyncFn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let (token, ownership) = granted(backend, "renewed", &Holder::random(), 600_000).await?;
    let mut tries = JoinSet::new();
    let (leaving, waiter) = (backend.clone(), waiter.clone());
    tries.spawn(async move {
        let _ = leaving.release(&name("left"), &waiter, None).await;
    });
    until_async(SOON, async || is_waiting().await).await.context("the release does not wait")?;
    for _ in 0..12 {
        let backend = backend.clone();
        tries.spawn(async move {
            let (lock, holder) = (name("blocked"), Holder::random());
            let _ = backend.try_acquire(&lock, &holder, ttl(10), Order::Unordered).await;
        });
    }
    for _ in 0..3 {
        let renewal = name("renewed");
        let renewal = backend.renew(&renewal, &ownership, ttl(600_000));
        let renewed = timeout(backend.answer_timeout() / 20, renewal).await;
        ensure!(renewed.context("the renewal waits")?? == Some(token));
    }
    let above = backend.reissue(&name("renewed"), &ownership, token).await?;
    ensure!(above > Some(token));
    let status = backend.status(&name("renewed")).await?;
    ensure!(status.held.is_some());
    ensure!(tries.try_join_next().is_none(), "the tries wait all the time");
    tries.abort_all();
    Ok(())
}

//! Waiters in both orders.

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use fence::Holder;
use lock_client::{Locks, Order, Terms, backend::Backend};
use testbed::wait::until_async;
use tokio::{sync::Mutex, task::JoinSet, time::timeout};

use super::{SOON, busy, granted};
use crate::{
    lock_service::{ttl, unrenewed},
    names::name,
};

/// Two clients pass a lock to each other. A waiter whose wake-up is lost tries by itself much later.
pub(crate) async fn release_wakes_the_waiter(
    open: impl Fn() -> anyhow::Result<Locks>,
    rounds: usize,
    most: Duration,
) -> anyhow::Result<()> {
    let (mut holder, mut waiter) = (open()?, open()?);
    let mut lease = holder.acquire(&name("passed"), unrenewed(600_000)).await?;
    for round in 0..rounds {
        let (terms, lock) = (Terms::new(ttl(600_000)).without_renewal(), name("passed"));
        let mut acquiring = Box::pin(waiter.acquire(&lock, terms));
        // Released at any moment of the acquire: before it tries, subscribes, or waits.
        let early = Duration::from_micros(rand::random_range(0..10_000));
        ensure!(timeout(early, &mut acquiring).await.is_err(), "the lock is held");
        lease.release().await?;
        lease = timeout(most, acquiring).await.with_context(|| format!("round {round}"))??;
        std::mem::swap(&mut holder, &mut waiter);
    }
    lease.release().await?;
    Ok(())
}

pub(crate) async fn fair_waiters_keep_their_order(
    backend: &(impl Backend + Clone),
) -> anyhow::Result<()> {
    let locks = Locks::new(backend.clone());
    let lease = locks.acquire(&name("fair"), ttl(600_000)).await?;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for number in 0..6 {
        let (locks, order) = (Locks::new(backend.clone()), order.clone());
        waiters.spawn(async move {
            let lease = locks.acquire(&name("fair"), Terms::new(ttl(60_000)).fair()).await?;
            order.lock().await.push(number);
            lease.release().await?;
            anyhow::Ok(())
        });
        let queued = async || Ok(backend.status(&name("fair")).await?.queued == number + 1);
        until_async(SOON, queued).await?;
    }
    // One that is not in the queue does not overtake it.
    lease.release().await?;
    while let Some(ended) = timeout(SOON, waiters.join_next()).await? {
        ended??;
    }
    let order = order.lock().await.clone();
    ensure!(order == [0, 1, 2, 3, 4, 5], "{order:?}");
    Ok(())
}

pub(crate) async fn queue_is_not_overtaken(backend: &impl Backend) -> anyhow::Result<()> {
    let (holder, first, second) = (Holder::random(), Holder::random(), Holder::random());
    granted(backend, "overtaken", &holder, 60_000).await?;
    let contention = busy(backend, "overtaken", &first, Order::Fair).await?;
    ensure!(contention.ahead == Some(0) && contention.nap <= Some(Duration::from_secs(1)));
    let contention = busy(backend, "overtaken", &second, Order::Fair).await?;
    ensure!(contention.ahead == Some(1));
    backend.release(&name("overtaken"), &holder, None).await?;
    busy(backend, "overtaken", &Holder::random(), Order::Unordered).await?;
    busy(backend, "overtaken", &second, Order::Fair).await?;
    granted(backend, "overtaken", &first, 60_000).await?;
    Ok(())
}

/// A waiter that has crashed keeps the others out for 3 seconds, and not for longer.
pub(crate) async fn dead_head_is_skipped(backend: &(impl Backend + Clone)) -> anyhow::Result<()> {
    let (holder, dead) = (Holder::random(), Holder::random());
    granted(backend, "dead", &holder, 600_000).await?;
    let died = Instant::now();
    busy(backend, "dead", &dead, Order::Fair).await?;
    let locks = Locks::new(backend.clone());
    let (lock, terms) = (name("dead"), Terms::new(ttl(60_000)).fair());
    let mut waiting = Box::pin(locks.acquire(&lock, terms));
    let queued = until_async(SOON, async || Ok(backend.status(&name("dead")).await?.queued == 2));
    let mut queued = Box::pin(queued);
    poll_fn(|context| {
        assert!(waiting.as_mut().poll(context).is_pending(), "the lock is held");
        match queued.as_mut().poll(context) {
            Poll::Ready(queued) => Poll::Ready(queued),
            Poll::Pending => Poll::Pending,
        }
    })
    .await?;
    backend.release(&lock, &holder, None).await?;
    let lease =
        timeout(Duration::from_secs(12), waiting).await.context("it waits for the dead")??;
    ensure!(died.elapsed() > Duration::from_millis(2_900), "it was skipped while it lived");
    lease.release().await?;
    Ok(())
}

/// A client notifies its own waiters, also if its database notifies nobody. The locks are released by
/// `releasing`, which is the same client, or in the control another one: then some waiters only poll.
pub(crate) async fn release_notifies_own_waiters(
    waiting: &impl Backend,
    releasing: &impl Backend,
) -> anyhow::Result<()> {
    let lock = name("own");
    for order in [Order::Unordered, Order::Fair].repeat(10) {
        let [holder, waiter] = [Holder::random(), Holder::random()];
        let (token, _) = granted(waiting, "own", &holder, 60_000).await?;
        busy(waiting, "own", &waiter, order).await?;
        let wakeups = waiting.subscribe(&lock, &waiter, order).await?;
        releasing.release(&lock, &holder, Some(token)).await?;
        // Nothing is waited for, so that a poll hardly comes before this.
        let mut next = pin!(wakeups.next());
        let is_notified = poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_ready()));
        let is_notified = is_notified.await;
        releasing.release(&lock, &waiter, None).await?;
        ensure!(is_notified, "{order:?}: the waiter was not notified");
    }
    Ok(())
}

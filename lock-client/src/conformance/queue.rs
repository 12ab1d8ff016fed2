//! The fair queue: nobody overtakes, and nobody who is gone holds up the others.

use fence::Holder;
use tokio::time::{sleep, timeout};

use super::{
    Checked, Subject,
    dropped::Dropped,
    ensure,
    try_lock::{PATIENCE, POLL_INTERVAL, acquire_free, long, new_name, release, try_once},
    waiting::NOTIFIED_WITHIN,
};
use crate::{
    Moment, Order,
    backend::{Attempt, Backend, BackendError},
};

/// A waiter that asks for a fair order must not wait in another.
pub(super) async fn missing_order_is_invalid<S: Subject>(subject: &mut S) -> Checked {
    if S::IS_FAIR {
        return Ok(());
    }
    let (backend, name) = (subject.connect(), new_name("missing"));
    let tried = backend.try_acquire(&name, &Holder::random(), long(), Order::Fair).await;
    ensure!(matches!(tried, Err(BackendError::Invalid(_))), "the answer is {tried:?}");
    acquire_free(&backend, &name, long()).await.map(drop)
}

/// Nobody overtakes the first waiter, whichever order the others want.
pub(super) async fn queue_is_fair<S: Subject>(subject: &mut S) -> Checked {
    if !S::IS_FAIR {
        return Ok(());
    }
    let (backend, name) = (subject.connect(), new_name("queue"));
    let mut held = acquire_free(&backend, &name, long()).await?;
    let waiters: Vec<_> = (0..3).map(|_| Holder::random()).collect();
    for (ahead, waiter) in waiters.iter().enumerate() {
        let tried = backend.try_acquire(&name, waiter, long(), Order::Fair).await?;
        let is_behind = matches!(tried, Attempt::Busy(it) if it.ahead == Some(ahead as u64));
        ensure!(is_behind, "waiter {ahead}: {tried:?}");
    }
    for (place, waiter) in waiters.iter().enumerate() {
        let wakeups = backend.subscribe(&name, waiter, Order::Fair).await?;
        release(&backend, &name, &held).await?;
        ensure!(
            timeout(NOTIFIED_WITHIN, wakeups.next()).await.is_ok(),
            "waiter {place} is not notified"
        );
        let newcomer = Holder::random();
        let overtaking = try_once(&backend, &name, &newcomer, long(), Order::Unordered).await;
        ensure!(overtaking?.is_none(), "a newcomer overtakes the queue");
        for later in &waiters[place + 1..] {
            let tried = backend.try_acquire(&name, later, long(), Order::Fair).await?;
            ensure!(matches!(tried, Attempt::Busy(_)), "a later waiter overtakes the first");
        }
        let tried = try_once(&backend, &name, waiter, long(), Order::Fair).await;
        held = tried?.ok_or(format!("waiter {place} does not get the lock"))?;
    }
    release(&backend, &name, &held).await.map(drop)
}

/// It is dropped at each await of its try, and is released without a token.
pub(super) async fn waiter_that_gives_up_leaves<S: Subject>(subject: &mut S) -> Checked {
    if !S::IS_FAIR {
        return Ok(());
    }
    let (backend, name) = (subject.connect(), new_name("given-up"));
    acquire_free(&backend, &name, long()).await?;
    for polls in 1.. {
        let waiter = Holder::random();
        let trying = backend.try_acquire(&name, &waiter, long(), Order::Fair);
        let tried = Dropped { future: trying, polls }.await;
        let released = backend.release(&name, &waiter, None).await;
        ensure!(!released?, "it held the lock beside the owner");
        let status = backend.status(&name).await?;
        ensure!(status.queued == 0, "{} still wait", status.queued);
        if tried.is_some() {
            break;
        }
    }
    Ok(())
}

/// The first waiter never tries again.
pub(super) async fn waiter_that_is_gone_is_skipped<S: Subject>(subject: &mut S) -> Checked {
    if !S::IS_FAIR {
        return Ok(());
    }
    let (backend, gone, name) = (subject.connect(), subject.connect(), new_name("gone"));
    let held = acquire_free(&backend, &name, long()).await?;
    let (first, second) = (Holder::random(), Holder::random());
    let ttl = subject.shortest_ttl();
    for (client, waiter, ttl) in [(&gone, &first, ttl), (&backend, &second, long())] {
        let tried = try_once(client, &name, waiter, ttl, Order::Fair).await;
        ensure!(tried?.is_none(), "a waiter acquires a lock that is held");
    }
    drop(gone);
    release(&backend, &name, &held).await?;
    let begun = Moment::now();
    loop {
        let tried = try_once(&backend, &name, &second, long(), Order::Fair).await;
        if tried?.is_some() {
            return Ok(());
        }
        ensure!(begun.elapsed() <= PATIENCE, "the next waits for more than {PATIENCE:?}");
        sleep(POLL_INTERVAL).await;
    }
}

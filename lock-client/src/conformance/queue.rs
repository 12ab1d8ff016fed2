//! The fair queue: nobody overtakes, and nobody who is gone holds up the others.

use fence::Holder;
use tokio::time::{sleep, timeout};

use super::{
    Checked, Subject,
    dropped::Dropped,
    try_lock::{PATIENCE, POLL_INTERVAL, acquire_free, failed, long, new_name, release, try_once},
    violation,
    waiting::NOTIFIED_WITHIN,
};
use crate::{
    Moment, Order,
    backend::{Attempt, Backend, BackendError},
};

/// A waiter that asks for a fair order must not wait in another.
pub(super) async fn missing_order_is_invalid<S: Subject>(subject: &mut S) -> Checked {
    const PROMISE: &str = "a fair order that is missing is invalid";
    if S::IS_FAIR {
        return Ok(());
    }
    let (backend, name) = (subject.connect(), new_name("missing"));
    match backend.try_acquire(&name, &Holder::random(), long(), Order::Fair).await {
        Err(BackendError::Invalid(_)) => {}
        other => return Err(violation(PROMISE, format!("the answer is {other:?}"))),
    }
    acquire_free(PROMISE, &backend, &name, long()).await.map(drop)
}

/// Nobody overtakes the first waiter, whichever order the others want.
pub(super) async fn queue_is_fair<S: Subject>(subject: &mut S) -> Checked {
    const PROMISE: &str = "the queue is fair";
    if !S::IS_FAIR {
        return Ok(());
    }
    let (backend, name) = (subject.connect(), new_name("queue"));
    let mut held = acquire_free(PROMISE, &backend, &name, long()).await?;
    let waiters: Vec<_> = (0..3).map(|_| Holder::random()).collect();
    for (ahead, waiter) in waiters.iter().enumerate() {
        let tried = backend.try_acquire(&name, waiter, long(), Order::Fair).await;
        match tried.map_err(|error| failed(PROMISE, &error))? {
            Attempt::Busy(contention) if contention.ahead == Some(ahead as u64) => {}
            other => return Err(violation(PROMISE, format!("waiter {ahead}: {other:?}"))),
        }
    }
    for (place, waiter) in waiters.iter().enumerate() {
        let wakeups = backend.subscribe(&name, waiter, Order::Fair).await;
        let wakeups = wakeups.map_err(|error| failed(PROMISE, &error))?;
        release(PROMISE, &backend, &name, &held).await?;
        if timeout(NOTIFIED_WITHIN, wakeups.next()).await.is_err() {
            return Err(violation(PROMISE, format!("waiter {place} is not notified")));
        }
        let newcomer = Holder::random();
        let overtaking = try_once(&backend, &name, &newcomer, long(), Order::Unordered).await;
        if overtaking.map_err(|error| failed(PROMISE, &error))?.is_some() {
            return Err(violation(PROMISE, "a newcomer overtakes the queue"));
        }
        for later in &waiters[place + 1..] {
            let tried = backend.try_acquire(&name, later, long(), Order::Fair).await;
            if let Attempt::Granted { .. } = tried.map_err(|error| failed(PROMISE, &error))? {
                return Err(violation(PROMISE, "a later waiter overtakes the first"));
            }
        }
        let tried = try_once(&backend, &name, waiter, long(), Order::Fair).await;
        held = tried
            .map_err(|error| failed(PROMISE, &error))?
            .ok_or_else(|| violation(PROMISE, format!("waiter {place} does not get the lock")))?;
    }
    release(PROMISE, &backend, &name, &held).await.map(drop)
}

/// It is dropped at each await of its try, and is released without a token.
pub(super) async fn waiter_that_gives_up_leaves<S: Subject>(subject: &mut S) -> Checked {
    const PROMISE: &str = "a waiter that gives up leaves the queue";
    if !S::IS_FAIR {
        return Ok(());
    }
    let (backend, name) = (subject.connect(), new_name("given-up"));
    acquire_free(PROMISE, &backend, &name, long()).await?;
    for polls in 1.. {
        let waiter = Holder::random();
        let trying = backend.try_acquire(&name, &waiter, long(), Order::Fair);
        let tried = Dropped { future: trying, polls }.await;
        let released = backend.release(&name, &waiter, None).await;
        if released.map_err(|error| failed(PROMISE, &error))? {
            return Err(violation(PROMISE, "it held the lock beside the owner"));
        }
        let status = backend.status(&name).await.map_err(|error| failed(PROMISE, &error))?;
        if status.queued != 0 {
            return Err(violation(PROMISE, format!("{} still wait", status.queued)));
        }
        if tried.is_some() {
            break;
        }
    }
    Ok(())
}

/// The first waiter never tries again.
pub(super) async fn waiter_that_is_gone_is_skipped<S: Subject>(subject: &mut S) -> Checked {
    const PROMISE: &str = "a waiter that is gone holds up nobody";
    if !S::IS_FAIR {
        return Ok(());
    }
    let (backend, gone, name) = (subject.connect(), subject.connect(), new_name("gone"));
    let held = acquire_free(PROMISE, &backend, &name, long()).await?;
    let (first, second) = (Holder::random(), Holder::random());
    let ttl = subject.shortest_ttl();
    for (client, waiter, ttl) in [(&gone, &first, ttl), (&backend, &second, long())] {
        let tried = try_once(client, &name, waiter, ttl, Order::Fair).await;
        if tried.map_err(|error| failed(PROMISE, &error))?.is_some() {
            return Err(violation(PROMISE, "a waiter acquires a lock that is held"));
        }
    }
    drop(gone);
    release(PROMISE, &backend, &name, &held).await?;
    let begun = Moment::now();
    loop {
        let tried = try_once(&backend, &name, &second, long(), Order::Fair).await;
        if tried.map_err(|error| failed(PROMISE, &error))?.is_some() {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(violation(PROMISE, format!("the next waits for more than {PATIENCE:?}")));
        }
        sleep(POLL_INTERVAL).await;
    }
}

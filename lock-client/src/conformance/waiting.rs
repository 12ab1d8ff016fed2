//! Waiting: no release goes unnoticed, and the queue keeps its order.

use std::time::Duration;

use fence::Holder;
use tokio::time::timeout;

use super::{
    Checked, Subject,
    try_lock::{acquire_free, failed, long, new_name, release, try_once},
    violation,
};
use crate::{
    Order,
    backend::{Attempt, Backend},
};

const ROUNDS: usize = 30;
/// How long a notification may take. A waiter that has to poll does so once a second.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(10);

/// The release races with the waiter's try. Either the try gets the lock, or the waiter is notified.
pub(super) async fn release_notifies_the_waiter(subject: &mut impl Subject) -> Checked {
    const PROMISE: &str = "a release notifies the waiter";
    let (owner, waiter, name) = (subject.connect(), subject.connect(), new_name("notified"));
    for round in 0..ROUNDS {
        let held = acquire_free(PROMISE, &owner, &name, long()).await?;
        let holder = Holder::random();
        let wakeups = waiter.subscribe(&name, &holder, Order::Unordered).await;
        let wakeups = wakeups.map_err(|error| failed(PROMISE, &error))?;
        let trying = try_once(&waiter, &name, &holder, long(), Order::Unordered);
        let releasing = release(PROMISE, &owner, &name, &held);
        let (tried, released) = match round % 2 {
            0 => tokio::join!(biased; trying, releasing),
            _ => {
                let (released, tried) = tokio::join!(biased; releasing, trying);
                (tried, released)
            }
        };
        released?;
        let mut taken = tried.map_err(|error| failed(PROMISE, &error))?;
        while taken.is_none() {
            if timeout(NOTIFIED_WITHIN, wakeups.next()).await.is_err() {
                return Err(violation(PROMISE, format!("not in round {round}")));
            }
            let tried = try_once(&waiter, &name, &holder, long(), Order::Unordered).await;
            taken = tried.map_err(|error| failed(PROMISE, &error))?;
        }
        let taken = taken.expect("the loop ended");
        release(PROMISE, &waiter, &name, &taken).await?;
    }
    Ok(())
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

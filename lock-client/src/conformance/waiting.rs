//! Waiting: no release goes unnoticed.

use std::time::Duration;

use fence::Holder;
use tokio::time::timeout;

use super::{
    Checked, Subject,
    subject::Failure,
    try_lock::{PATIENCE, acquire_free, failed, long, new_name, release, try_once, until_answered},
    violation,
};
use crate::{Order, backend::Backend};

const ROUNDS: usize = 30;
/// How long a notification may take. A waiter that has to poll does so once a second.
pub(super) const NOTIFIED_WITHIN: Duration = Duration::from_secs(10);

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

/// A waiter in no order that is not notified would wait until it tries without a notification.
pub(super) async fn release_notifies_all_waiters(subject: &mut impl Subject) -> Checked {
    const PROMISE: &str = "a release notifies all waiters that are in no order";
    let (owner, name) = (subject.connect(), new_name("all"));
    let held = acquire_free(PROMISE, &owner, &name, long()).await?;
    // Two of them are in one process.
    let (near, far) = (subject.connect(), subject.connect());
    let mut waiters = Vec::new();
    for client in [&near, &near, &far] {
        let wakeups = client.subscribe(&name, &Holder::random(), Order::Unordered).await;
        waiters.push(wakeups.map_err(|error| failed(PROMISE, &error))?);
    }
    release(PROMISE, &owner, &name, &held).await?;
    for (number, wakeups) in waiters.iter().enumerate() {
        if timeout(NOTIFIED_WITHIN, wakeups.next()).await.is_err() {
            return Err(violation(PROMISE, format!("waiter {number} is not notified")));
        }
    }
    Ok(())
}

/// The connection of a waiter is lost, and made anew.
pub(super) async fn subscription_survives_a_restart(subject: &mut impl Subject) -> Checked {
    const PROMISE: &str = "a subscription survives a restart of the service";
    let disturbed = |error: Failure| violation(PROMISE, error);
    let (owner, waiter, name) = (subject.connect(), subject.connect(), new_name("restarted"));
    let held = acquire_free(PROMISE, &owner, &name, long()).await?;
    let wakeups = waiter.subscribe(&name, &Holder::random(), Order::Unordered).await;
    let wakeups = wakeups.map_err(|error| failed(PROMISE, &error))?;
    subject.stop().await.map_err(disturbed)?;
    subject.start().await.map_err(disturbed)?;
    let (holder, token) = (&held.ownership.holder, Some(held.token));
    until_answered(PROMISE, || owner.release(&name, holder, token)).await?;
    match timeout(PATIENCE, wakeups.next()).await {
        Ok(()) => Ok(()),
        Err(_) => Err(violation(PROMISE, "the waiter is not notified any more")),
    }
}

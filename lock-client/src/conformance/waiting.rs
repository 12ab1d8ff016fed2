//! Waiting: no release goes unnoticed.

use std::time::Duration;

use fence::Holder;
use tokio::time::timeout;

use super::{
    Checked, Subject, disturbed, ensure,
    try_lock::{PATIENCE, acquire_free, long, new_name, release, try_once, until_answered},
};
use crate::{Order, backend::Backend};

const ROUNDS: usize = 30;
/// How long a notification may take. A waiter that has to poll does so once a second.
pub(super) const NOTIFIED_WITHIN: Duration = Duration::from_secs(10);

/// The release races with the waiter's try. Either the try gets the lock, or the waiter is notified.
pub(super) async fn release_notifies_the_waiter(subject: &mut impl Subject) -> Checked {
    let (owner, waiter, name) = (subject.connect(), subject.connect(), new_name("notified"));
    for round in 0..ROUNDS {
        let held = acquire_free(&owner, &name, long()).await?;
        let holder = Holder::random();
        let wakeups = waiter.subscribe(&name, &holder, Order::Unordered).await?;
        let trying = try_once(&waiter, &name, &holder, long(), Order::Unordered);
        let releasing = release(&owner, &name, &held);
        let (tried, released) = match round % 2 {
            0 => tokio::join!(biased; trying, releasing),
            _ => {
                let (released, tried) = tokio::join!(biased; releasing, trying);
                (tried, released)
            }
        };
        released?;
        let mut taken = tried?;
        while taken.is_none() {
            ensure!(timeout(NOTIFIED_WITHIN, wakeups.next()).await.is_ok(), "not in round {round}");
            let tried = try_once(&waiter, &name, &holder, long(), Order::Unordered).await;
            taken = tried?;
        }
        let taken = taken.expect("the loop ended");
        release(&waiter, &name, &taken).await?;
    }
    Ok(())
}

/// A waiter in no order that is not notified would wait until it tries without a notification.
pub(super) async fn release_notifies_all_waiters(subject: &mut impl Subject) -> Checked {
    let (owner, name) = (subject.connect(), new_name("all"));
    let held = acquire_free(&owner, &name, long()).await?;
    // Two of them are in one process.
    let (near, far) = (subject.connect(), subject.connect());
    let mut waiters = Vec::new();
    for client in [&near, &near, &far] {
        let wakeups = client.subscribe(&name, &Holder::random(), Order::Unordered).await;
        waiters.push(wakeups?);
    }
    release(&owner, &name, &held).await?;
    for (number, wakeups) in waiters.iter().enumerate() {
        ensure!(
            timeout(NOTIFIED_WITHIN, wakeups.next()).await.is_ok(),
            "waiter {number} is not notified"
        );
    }
    Ok(())
}

/// The connection of a waiter is lost, and made anew.
pub(super) async fn subscription_survives_a_restart(subject: &mut impl Subject) -> Checked {
    let (owner, waiter, name) = (subject.connect(), subject.connect(), new_name("restarted"));
    let held = acquire_free(&owner, &name, long()).await?;
    let wakeups = waiter.subscribe(&name, &Holder::random(), Order::Unordered).await?;
    disturbed(subject.stop().await)?;
    disturbed(subject.start().await)?;
    let (holder, token) = (&held.ownership.holder, Some(held.token));
    until_answered(|| owner.release(&name, holder, token)).await?;
    let notified = timeout(PATIENCE, wakeups.next()).await;
    ensure!(notified.is_ok(), "the waiter is not notified any more");
    Ok(())
}

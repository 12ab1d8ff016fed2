//! The steps that the checks are made of.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use fence::{Holder, ResourceName, Token};
use tokio::time::sleep;

use super::{Checked, ensure};
use crate::{
    Moment, Order, Ttl,
    backend::{Attempt, Backend, BackendError, BackendFuture, Ownership},
};

/// How long the suite waits for something that must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// A ttl that no check outlasts.
pub(super) const LONG: Duration = Duration::from_secs(300);

/// A lock that was granted.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) token: Token,
    pub(super) ownership: Ownership,
}

/// Makes a name that no other check uses.
pub(super) fn new_name(what: &str) -> ResourceName {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let random = Holder::random();
    format!("conformance/{what}/{number}-{}", random.as_str())
        .parse()
        .expect("the suite's names are valid")
}

pub(super) fn long() -> Ttl {
    Ttl::new(LONG).expect("it is a valid ttl")
}

/// Tries once, and repeats the try while the service does not answer.
pub(super) async fn try_once(
    backend: &impl Backend,
    name: &ResourceName,
    holder: &Holder,
    ttl: Ttl,
    order: Order,
) -> Checked<Option<Held>> {
    let begun = Moment::now();
    loop {
        match backend.try_acquire(name, holder, ttl, order).await {
            Ok(Attempt::Granted { token, ownership, .. }) => {
                return Ok(Some(Held { token, ownership }));
            }
            Ok(Attempt::Busy(_)) => return Ok(None),
            Err(BackendError::Unavailable(_)) if begun.elapsed() < PATIENCE => {
                sleep(POLL_INTERVAL).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Acquires a lock that must be free, in no order, as a new holder.
pub(super) async fn acquire_free(
    backend: &impl Backend,
    name: &ResourceName,
    ttl: Ttl,
) -> Checked<Held> {
    let tried = try_once(backend, name, &Holder::random(), ttl, Order::Unordered).await;
    match tried? {
        Some(held) => Ok(held),
        None => Err(format!("the lock `{name}` is not free").into()),
    }
}

/// Tries until the lock is acquired, as a new holder for each try.
pub(super) async fn acquire_when_free(
    backend: &impl Backend,
    name: &ResourceName,
    ttl: Ttl,
) -> Checked<Held> {
    let begun = Moment::now();
    loop {
        let holder = Holder::random();
        let tried = try_once(backend, name, &holder, ttl, Order::Unordered).await?;
        if let Some(held) = tried {
            return Ok(held);
        }
        ensure!(begun.elapsed() <= PATIENCE, "the lock `{name}` never becomes free");
        sleep(POLL_INTERVAL).await;
    }
}

/// Releases a lock that was granted. Returns whether the holder had it.
pub(super) async fn release(
    backend: &impl Backend,
    name: &ResourceName,
    held: &Held,
) -> Checked<bool> {
    Ok(backend.release(name, &held.ownership.holder, Some(held.token)).await?)
}

/// Repeats a request until it is answered.
pub(super) async fn until_answered<'a, T>(
    request: impl Fn() -> BackendFuture<'a, T>,
) -> Checked<T> {
    let begun = Moment::now();
    loop {
        match request().await {
            Ok(answer) => return Ok(answer),
            Err(BackendError::Unavailable(_)) if begun.elapsed() < PATIENCE => {
                sleep(POLL_INTERVAL).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

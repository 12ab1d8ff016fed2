//! The steps that the checks are made of.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use fence::{Holder, ResourceName, Token};
use tokio::time::sleep;

use super::{Violation, violation};
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
) -> Result<Option<Held>, BackendError> {
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
            Err(error) => return Err(error),
        }
    }
}

/// Acquires a lock that must be free, in no order, as a new holder.
pub(super) async fn acquire_free(
    promise: &'static str,
    backend: &impl Backend,
    name: &ResourceName,
    ttl: Ttl,
) -> Result<Held, Violation> {
    let tried = try_once(backend, name, &Holder::random(), ttl, Order::Unordered).await;
    match tried.map_err(|error| failed(promise, &error))? {
        Some(held) => Ok(held),
        None => Err(violation(promise, format!("the lock `{name}` is not free"))),
    }
}

/// Tries until the lock is acquired, as a new holder for each try.
pub(super) async fn acquire_when_free(
    promise: &'static str,
    backend: &impl Backend,
    name: &ResourceName,
    ttl: Ttl,
) -> Result<Held, Violation> {
    let begun = Moment::now();
    loop {
        let holder = Holder::random();
        let tried = try_once(backend, name, &holder, ttl, Order::Unordered).await;
        if let Some(held) = tried.map_err(|error| failed(promise, &error))? {
            return Ok(held);
        }
        if begun.elapsed() > PATIENCE {
            return Err(violation(promise, format!("the lock `{name}` never becomes free")));
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Releases a lock that was granted. Returns whether the holder had it.
pub(super) async fn release(
    promise: &'static str,
    backend: &impl Backend,
    name: &ResourceName,
    held: &Held,
) -> Result<bool, Violation> {
    let released = backend.release(name, &held.ownership.holder, Some(held.token)).await;
    released.map_err(|error| failed(promise, &error))
}

/// Repeats a request until it is answered.
pub(super) async fn until_answered<'a, T>(
    promise: &'static str,
    request: impl Fn() -> BackendFuture<'a, T>,
) -> Result<T, Violation> {
    let begun = Moment::now();
    loop {
        match request().await {
            Ok(answer) => return Ok(answer),
            Err(BackendError::Unavailable(_)) if begun.elapsed() < PATIENCE => {
                sleep(POLL_INTERVAL).await;
            }
            Err(error) => return Err(failed(promise, &error)),
        }
    }
}

/// A violation by an error that must not occur.
pub(super) fn failed(promise: &'static str, error: &BackendError) -> Violation {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    violation(promise, format!("{error}: {source}"))
}

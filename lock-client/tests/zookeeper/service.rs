//! A private ZooKeeper as a lock service: its clients, and single requests of holders.

use std::time::Duration;

use fence::{Holder, ResourceName, Token};
use lock_client::{
    Moment, Order, Ttl,
    backend::{Attempt, Backend, BackendError, Contention, Ownership},
    zookeeper::ZooKeeper,
};
use testbed::wait::until_async;

use crate::{lock_service::with_causes, names::name};

pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Makes a client of a ZooKeeper, with patience for a busy machine.
pub(crate) fn client(url: &str) -> ZooKeeper {
    ZooKeeper::open(url).unwrap().answer_within(Duration::from_secs(5))
}

pub(crate) fn secs(seconds: u64) -> Ttl {
    Ttl::from_secs(seconds).unwrap()
}

/// A lock that was granted.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) token: Token,
    pub(crate) ownership: Ownership,
    pub(crate) asked: Moment,
}

/// Tries once to acquire `r` for a minute.
pub(crate) async fn attempt(
    zookeeper: &ZooKeeper,
    holder: &Holder,
    order: Order,
) -> Result<Attempt, BackendError> {
    zookeeper.try_acquire(&name("r"), holder, secs(60), order).await
}

/// Acquires a lock that is free, in no order.
pub(crate) async fn acquired(zookeeper: &ZooKeeper, name: &ResourceName, ttl: Ttl) -> Held {
    held(zookeeper.try_acquire(name, &Holder::random(), ttl, Order::Unordered).await)
}

/// Returns what was granted.
pub(crate) fn held(attempt: Result<Attempt, BackendError>) -> Held {
    match attempt {
        Ok(Attempt::Granted { token, ownership, asked }) => Held { token, ownership, asked },
        Ok(busy) => panic!("the lock is not free: {busy:?}"),
        Err(error) => panic!("{}", with_causes(&error)),
    }
}

/// Returns why nothing was granted.
pub(crate) fn busy(attempt: Result<Attempt, BackendError>) -> Contention {
    match attempt {
        Ok(Attempt::Busy(contention)) => contention,
        Ok(granted) => panic!("the lock is free: {granted:?}"),
        Err(error) => panic!("{}", with_causes(&error)),
    }
}

/// Releases `r`.
pub(crate) async fn release(zookeeper: &ZooKeeper, held: &Held) -> bool {
    zookeeper.release(&name("r"), &held.ownership.holder, Some(held.token)).await.unwrap()
}

/// Waits until `r` is free.
pub(crate) async fn until_free(zookeeper: &ZooKeeper) {
    let is_free = async || Ok(zookeeper.status(&name("r")).await?.held.is_none());
    until_async(SOON, is_free).await.unwrap();
}

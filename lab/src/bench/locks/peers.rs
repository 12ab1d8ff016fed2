//! Who is measured on one Redis.

use lock_client::Order;
use redis::aio::MultiplexedConnection;

use super::{lines::MANY, python::Python};
use crate::bench::peer::{Fenced, Peer, RsLock};
use testbed::Redis;

/// Who is measured.
pub(super) struct Peers {
    pub(super) ping: MultiplexedConnection,
    pub(super) fenced: Fenced,
    /// As many clients as there are to be at once, with connections of their own.
    pub(super) fenced_apart: Vec<Fenced>,
    pub(super) rslock: RsLock,
    pub(super) python: Python,
}

impl Peers {
    pub(super) async fn of(redis: &Redis) -> anyhow::Result<Self> {
        let url = redis.url();
        let apart = (0..=MANY).map(|_| Fenced::open(&url));
        // Ours and rslock's are of the same kind.
        let ping = redis::Client::open(&*url)?.get_multiplexed_async_connection().await?;
        Ok(Self {
            ping,
            fenced: Fenced::open(&url)?,
            fenced_apart: apart.collect::<anyhow::Result<_>>()?,
            rslock: RsLock::open(std::slice::from_ref(&url))?,
            python: Python::start(&url)?,
        })
    }
}

/// Locks that are waited for. That all wait is told by how often Redis was asked.
pub(super) trait Waiter: Peer {
    /// The command that asks Redis for a lock.
    const ASKS_BY: &'static str;

    /// How often so many waiters, of so many clients, ask until all of them wait.
    fn asks_until_waiting(&self, waiters: usize, clients: usize) -> usize;
}

impl Waiter for Fenced {
    const ASKS_BY: &'static str = "evalsha";

    /// Each asks once, and those that Redis is to wake once more, when they have subscribed.
    fn asks_until_waiting(&self, waiters: usize, clients: usize) -> usize {
        match self.order() {
            Order::Fair => 2 * waiters,
            Order::Unordered => waiters + waiters.min(clients),
        }
    }
}

impl Waiter for RsLock {
    const ASKS_BY: &'static str = "set";

    fn asks_until_waiting(&self, waiters: usize, _: usize) -> usize {
        waiters
    }
}

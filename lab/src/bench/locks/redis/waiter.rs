//! How each kind of lock waits, as seen by Redis.

use std::{marker::PhantomData, time::Duration};

use tokio::time::sleep;

use super::super::{gauge::Gauge, hold::CROWDED_HOLD};
use crate::bench::{
    peer::{Fenced, Peer, RsLock},
    work::{Meter, Work},
};

const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A lock client whose clients can wait. The number of its tries shows when all of them wait.
pub(super) trait Waiter: Peer {
    /// The command that tries to acquire a lock.
    const TRY: &'static str;

    /// The number of tries that Redis sees until these waiters, of these clients, all wait.
    fn tries_until_waiting(&self, waiters: usize, clients: usize) -> usize;
}

impl Waiter for Fenced {
    const TRY: &'static str = "evalsha";

    /// Each waiter tries once, and once more after it has subscribed. In a fair queue every waiter
    /// subscribes, otherwise one of each client.
    fn tries_until_waiting(&self, waiters: usize, clients: usize) -> usize {
        waiters + if self.is_fair() { waiters } else { waiters.min(clients) }
    }
}

impl Waiter for RsLock {
    const TRY: &'static str = "set";

    fn tries_until_waiting(&self, waiters: usize, _clients: usize) -> usize {
        waiters
    }
}

/// Counts the work of Redis, and the tries of waiters.
pub(super) struct WaiterGauge<'a, P> {
    meter: &'a mut Meter,
    before: Work,
    /// The first holder's try, and those of the others until they wait.
    tries: usize,
    _waiter: PhantomData<P>,
}

impl<'a, P: Waiter> WaiterGauge<'a, P> {
    pub(super) fn new(peers: &[P], waiters: usize, meter: &'a mut Meter) -> Self {
        let tries = 1 + peers[0].tries_until_waiting(waiters, peers.len());
        Self { meter, before: Work::default(), tries, _waiter: PhantomData }
    }
}

impl<P: Waiter> Gauge for WaiterGauge<'_, P> {
    type Work = Work;

    async fn start(&mut self) -> anyhow::Result<()> {
        self.before = self.meter.read().await?;
        Ok(())
    }

    async fn work(&mut self) -> anyhow::Result<Work> {
        Ok(self.meter.read().await?.since(&self.before).without("ping"))
    }

    async fn wait_for_all(&mut self) -> anyhow::Result<()> {
        while self.work().await?.calls_of(P::TRY) < self.tries as u64 {
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    async fn wait_for_last(&mut self) -> anyhow::Result<()> {
        sleep(CROWDED_HOLD).await;
        Ok(())
    }
}

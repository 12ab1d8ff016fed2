//! Handovers among clients of one lock service.

use std::sync::Arc;

use async_trait::async_trait;
use lock_client::Order;
use tokio::sync::watch;

use super::{
    super::{
        gauge::Gauge,
        hold::{Busy, HOLD, Hold},
    },
    counted::Tally,
    server::Server,
};

/// How many clients wait for a lock, and in which order.
#[derive(Clone)]
pub(super) struct Waiting {
    pub(super) server: Arc<dyn Server>,
    pub(super) tally: watch::Receiver<Tally>,
    pub(super) waiters: usize,
    pub(super) order: Order,
}

impl Waiting {
    async fn wait_for_all(&self) {
        let all_wait = |tally: &Tally| tally.all_wait(self.waiters, self.order);
        // Without a client of our locks, nothing is left to wait for.
        let _ = self.tally.clone().wait_for(all_wait).await;
    }
}

/// Holds until all others wait again, and a little longer.
#[async_trait]
impl Hold for Waiting {
    async fn pass(&self) -> anyhow::Result<()> {
        self.wait_for_all().await;
        // Some may still set up what will notify them.
        Busy(HOLD, self.server.clone()).pass().await
    }
}

/// Counts the work of the server.
pub(super) struct WaitingGauge {
    pub(super) waiting: Waiting,
    pub(super) before: u64,
}

impl WaitingGauge {
    async fn commands(&self) -> anyhow::Result<u64> {
        let counted = self.waiting.server.commands().await?;
        Ok(counted.unwrap_or_else(|| self.waiting.tally.borrow().requests))
    }
}

impl Gauge for WaitingGauge {
    type Work = u64;

    async fn start(&mut self) -> anyhow::Result<()> {
        self.before = self.commands().await?;
        Ok(())
    }

    async fn work(&mut self) -> anyhow::Result<u64> {
        Ok(self.commands().await? - self.before)
    }

    async fn wait_for_all(&mut self) -> anyhow::Result<()> {
        self.waiting.wait_for_all().await;
        Ok(())
    }

    async fn wait_for_last(&mut self) -> anyhow::Result<()> {
        self.waiting.pass().await
    }
}

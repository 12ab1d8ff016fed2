//! Our locks in a service, and who waits for them.

use std::{borrow::Cow, sync::Arc, time::Duration};

use async_trait::async_trait;
use fence::ResourceName;
use lock_client::Order;
use tokio::sync::watch;

use super::{
    counted::{Counted, Tally},
    handover::{Handover, Manner, Rest},
    service::Service,
};
use crate::bench::{
    peer::{self, Fenced, name, new_name},
    subject::{Subject, Times},
    work::Work,
};

/// One client of our locks, or several with connections of their own.
pub(super) struct Ours {
    service: Arc<dyn Service>,
    clients: Arc<[Fenced]>,
    tally: watch::Receiver<Tally>,
}

impl Ours {
    pub(super) fn new(service: Arc<dyn Service>, clients: usize) -> anyhow::Result<Self> {
        let tally = watch::Sender::default();
        let client =
            |_| Fenced::over(Counted { backend: service.backend()?, tally: tally.clone() });
        let clients = (0..clients).map(client).collect::<anyhow::Result<_>>()?;
        Ok(Self { clients, tally: tally.subscribe(), service })
    }

    /// Acquires and releases one lock repeatedly.
    pub(super) fn cycles(&self, title: &'static str, amount: usize) -> Subject<'_, Times> {
        self.cycles_of(title, amount, |count| vec![name("same"); count])
    }

    /// Acquires and releases a new lock each time.
    pub(super) fn cycles_of_new(&self, title: &'static str, amount: usize) -> Subject<'_, Times> {
        self.cycles_of(title, amount, |count| (0..count).map(|_| new_name()).collect())
    }

    fn cycles_of(
        &self,
        title: &'static str,
        amount: usize,
        names: fn(usize) -> Vec<ResourceName>,
    ) -> Subject<'_, Times> {
        Subject::new(title, amount, move |count| async move {
            self.metered(peer::cycles(&self.clients[0], &names(count))).await
        })
    }

    /// Hands a lock over among clients, of which so many wait.
    pub(super) fn handovers(
        &self,
        title: impl Into<Cow<'static, str>>,
        amount: usize,
        waiters: usize,
        order: Order,
        rest: Rest,
    ) -> Subject<'_, Times> {
        let peers: Arc<[Fenced]> = match order {
            Order::Fair => self.clients.iter().map(Fenced::fair).collect(),
            Order::Unordered => self.clients.clone(),
        };
        // In a fair queue each waiter is notified, otherwise one of each client.
        let notified = if order == Order::Fair { waiters } else { waiters.min(peers.len()) };
        let (service, tally) = (self.service.clone(), self.tally.clone());
        let manner = Arc::new(Waiting { service, tally, waiters, notified, rest });
        let run = move |count| {
            let (peers, manner) = (peers.clone(), manner.clone());
            async move {
                let handover = Handover { peers: &peers, waiters, manner };
                handover.measure(count, async || self.work().await).await
            }
        };
        Subject::new(title, amount, run).once_a_round()
    }

    /// Adds what the service does meanwhile to times.
    pub(super) async fn metered(
        &self,
        times: impl Future<Output = anyhow::Result<Vec<Duration>>>,
    ) -> anyhow::Result<Times> {
        let before = self.work().await?;
        let times = times.await?;
        Ok(Times { times, work: vec![self.work().await?.since(&before)] })
    }

    /// What the service has done; our own requests if it does not count.
    pub(super) async fn work(&self) -> anyhow::Result<Work> {
        let counted = self.service.work().await?;
        Ok(counted.unwrap_or_else(|| Work::of_commands(self.tally.borrow().requests)))
    }
}

/// How our clients wait and hold: a holder waits until all others wait again.
struct Waiting {
    service: Arc<dyn Service>,
    tally: watch::Receiver<Tally>,
    waiters: usize,
    notified: usize,
    rest: Rest,
}

#[async_trait]
impl Manner for Waiting {
    async fn all_wait(&self) -> anyhow::Result<()> {
        let all_wait = |tally: &Tally| tally.all_wait(self.waiters, self.notified);
        self.tally.clone().wait_for(all_wait).await?;
        Ok(())
    }

    async fn hold(&self) -> anyhow::Result<()> {
        self.all_wait().await?;
        // Some may still set up what will notify them.
        self.rest.pass(&*self.service).await
    }
}

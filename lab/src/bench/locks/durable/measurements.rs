//! Everything that is measured in rounds.

use std::{
    slice::from_ref,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use lock_client::Order;
use tokio::sync::watch;

use super::{
    super::{FEW, PARTS, handover::Handovers},
    counted::{Counted, Tally},
    server::Server,
    waiting::{Waiting, WaitingGauge},
};
use crate::bench::{
    peer::{self, Fenced, name},
    series::{Part, Series},
};

/// How often each subject is measured in a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) acquires: usize,
    pub(super) handovers: usize,
}

pub(super) struct Measurements {
    pub(super) server: Arc<dyn Server>,
    fenced: Fenced,
    /// How many clients wait for a lock that many want.
    pub(super) many: usize,
    tally: watch::Receiver<Tally>,
    pub(super) least: Series<u64>,
    pub(super) ours: Series<u64>,
    pub(super) round_trip: Series<u64>,
    pub(super) others: Vec<Series<u64>>,
    /// With few waiters and with many, each in no order and fair.
    pub(super) handovers: [Series<u64>; 4],
}

impl Measurements {
    /// Measures nothing yet, but uses each client once: the first use opens connections, and is not
    /// counted.
    pub(super) async fn start(server: Arc<dyn Server>, many: usize) -> anyhow::Result<Self> {
        let mut first_use = Self::new(server.clone(), many)?;
        first_use.measure_uncontended(1).await?;
        first_use.measure_others(PARTS - 1, 1).await?;
        let Self { fenced, tally, .. } = first_use;
        Ok(Self { fenced, tally, ..Self::new(server, many)? })
    }

    fn new(server: Arc<dyn Server>, many: usize) -> anyhow::Result<Self> {
        let counted = Counted::new(server.backend()?);
        let tally = counted.tally();
        let handovers =
            [FEW, many].map(|count| [format!("{count} wait"), format!("{count} wait, fair")]);
        let [[few, few_fair], [more, more_fair]] = handovers;
        Ok(Self {
            fenced: Fenced::over(counted)?,
            tally,
            least: Series::new(server.least_subject()),
            ours: Series::new("acquire, token, release"),
            round_trip: Series::new(server.round_trip_subject()),
            others: server.others().iter().map(|other| Series::new(other.subject)).collect(),
            handovers: [few, few_fair, more, more_fair].map(Series::new),
            many,
            server,
        })
    }

    pub(super) async fn add_round(&mut self, round: usize, counts: Counts) -> anyhow::Result<()> {
        for part in 0..PARTS {
            let count = counts.acquires.div_ceil(PARTS);
            self.measure_uncontended(count).await.context("a lock that nobody else wants")?;
            self.measure_others(part, count).await.context("what is shown beside ours")?;
        }
        self.measure_handovers(round, counts.handovers).await.context("a handover failed")
    }

    async fn measure_uncontended(&mut self, count: usize) -> anyhow::Result<()> {
        self.least.add(part_of(self.server.least(count).await?));
        let names = vec![name("same"); count];
        let before = self.server.commands().await?;
        let times = peer::cycles(&self.fenced, &names).await?;
        let after = self.server.commands().await?;
        let work = match after.zip(before) {
            Some((after, before)) => after - before,
            None => 2 * count as u64,
        };
        self.ours.add(Part { times, work });
        Ok(())
    }

    async fn measure_others(&mut self, part: usize, count: usize) -> anyhow::Result<()> {
        let mut times = Vec::new();
        for _ in 0..count {
            let begun = Instant::now();
            self.server.round_trip().await?;
            times.push(begun.elapsed());
        }
        self.round_trip.add(part_of(times));
        for (number, series) in self.others.iter_mut().enumerate() {
            // A part of a slow subject would be less than one.
            let total = (count * PARTS).div_ceil(self.server.others()[number].once_in);
            let count = total * (part + 1) / PARTS - total * part / PARTS;
            if count > 0 {
                series.add(part_of(self.server.measure_other(number, count).await?));
            }
        }
        Ok(())
    }

    async fn measure_handovers(&mut self, round: usize, count: usize) -> anyhow::Result<()> {
        let fair = self.fenced.fair();
        let kinds = [
            (&self.fenced, FEW, Order::Unordered),
            (&fair, FEW, Order::Fair),
            (&self.fenced, self.many, Order::Unordered),
            (&fair, self.many, Order::Fair),
        ];
        for (n, (series, (peer, waiters, order))) in
            self.handovers.iter_mut().zip(kinds).enumerate()
        {
            let (server, tally) = (self.server.clone(), self.tally.clone());
            let waiting = Waiting { server, tally, waiters, order };
            let hold = Arc::new(waiting.clone());
            let handovers = Handovers { peers: from_ref(peer), count, waiters, hold };
            let mut gauge = WaitingGauge { waiting, before: 0 };
            let name = name(&format!("handover/{round}/{n}"));
            series.add(handovers.measure(&name, &mut gauge).await?);
        }
        Ok(())
    }
}

/// A part whose work was not counted.
fn part_of(times: Vec<Duration>) -> Part<u64> {
    Part { times, work: 0 }
}

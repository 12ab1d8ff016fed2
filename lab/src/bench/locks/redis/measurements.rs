//! Everything that is measured in rounds.

use std::{slice::from_ref, sync::Arc, time::Duration};

use anyhow::Context;

use super::{
    super::{
        FEW, MANY, PARTS,
        handover::Handovers,
        hold::{Busy, CROWDED_HOLD, HOLD, Hold, Idle, PAUSE},
    },
    peers::Peers,
    uncontended,
    waiter::WaiterGauge,
};
use crate::bench::{
    peer::{Fenced, name},
    series::Series,
    work::Meter,
};

/// How often each kind of lock is measured in a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) acquires: usize,
    pub(super) handovers: usize,
    pub(super) polled_handovers: usize,
}

#[derive(Debug)]
pub(super) struct Measurements {
    pub(super) uncontended: [Series; 8],
    /// Handovers of our locks, by busy holders.
    pub(super) busy: [Series; 6],
    /// Handovers of our locks, by idle holders.
    pub(super) idle: [Series; 2],
    pub(super) polled: [Series; 2],
}

impl Measurements {
    pub(super) fn new() -> Self {
        let uncontended = [
            "PING",
            "PING after a pause of 5 ms",
            "acquire, token, release",
            "the same, a new name each time",
            "rslock: acquire, release",
            "the same, a new name each time",
            "Python: PING",
            "Python: acquire, release",
        ];
        let busy = [
            "2 wait",
            "2 wait, fair",
            "100 wait",
            "100 wait, fair",
            "100 clients wait, busy for 10 ms",
            "100 clients wait, fair",
        ];
        Self {
            uncontended: uncontended.map(Series::new),
            busy: busy.map(Series::new),
            idle: ["2 wait, idle for 5 ms", "2 wait, idle for 5 ms, fair"].map(Series::new),
            polled: ["rslock: 2 wait", "Python: 2 wait"].map(Series::new),
        }
    }

    pub(super) async fn add_round(
        &mut self,
        round: usize,
        counts: Counts,
        peers: &mut Peers,
        meter: &mut Meter,
    ) -> anyhow::Result<()> {
        for part in 0..PARTS {
            let acquires = counts.acquires.div_ceil(PARTS);
            self.measure_uncontended(&format!("{round}/{part}"), acquires, peers, meter).await?;
        }
        let pings = uncontended::pings(PAUSE, &mut peers.ping, counts.handovers, meter).await?;
        let [_, ping_after_pause, ..] = &mut self.uncontended;
        ping_after_pause.add(pings);
        self.measure_handovers(round, counts, peers, meter).await.context("a handover failed")
    }

    async fn measure_uncontended(
        &mut self,
        part: &str,
        count: usize,
        Peers { ping, fenced, rslock, python, .. }: &mut Peers,
        meter: &mut Meter,
    ) -> anyhow::Result<()> {
        let same = vec![name("same"); count];
        let new: Vec<_> = (0..count).map(|n| name(&format!("new/{part}/{n}"))).collect();
        let [pings, _, ours, ours_new, theirs, theirs_new, python_pings, pythons] =
            &mut self.uncontended;
        pings.add(uncontended::pings(Duration::ZERO, ping, count, meter).await?);
        ours.add(uncontended::cycles(fenced, &same, meter).await?);
        theirs.add(uncontended::cycles(rslock, &same, meter).await?);
        ours_new.add(uncontended::cycles(fenced, &new, meter).await?);
        theirs_new.add(uncontended::cycles(rslock, &new, meter).await?);
        python_pings.add(python.pings(count, meter).await?);
        pythons.add(python.cycles(count, meter).await?);
        Ok(())
    }

    async fn measure_handovers(
        &mut self,
        round: usize,
        counts: Counts,
        Peers { ping, fenced, fenced_apart, rslock, python }: &mut Peers,
        meter: &mut Meter,
    ) -> anyhow::Result<()> {
        let fair = fenced.fair();
        let apart_fair: Vec<_> = fenced_apart.iter().map(Fenced::fair).collect();
        let busy_for = |time| -> Arc<dyn Hold> { Arc::new(Busy(time, Arc::new(ping.clone()))) };
        let (busy, crowded) = (busy_for(HOLD), busy_for(CROWDED_HOLD));
        let idle: Arc<dyn Hold> = Arc::new(Idle);
        let [few, few_fair, many, many_fair, many_apart, many_apart_fair] = &mut self.busy;
        let [few_idle, few_idle_fair] = &mut self.idle;
        let kinds = [
            (few, from_ref(fenced), FEW, busy.clone()),
            (few_fair, from_ref(&fair), FEW, busy.clone()),
            (many, from_ref(fenced), MANY, busy.clone()),
            (many_fair, from_ref(&fair), MANY, busy.clone()),
            (many_apart, fenced_apart, MANY, crowded),
            (many_apart_fair, &apart_fair, MANY, busy.clone()),
            (few_idle, from_ref(fenced), FEW, idle.clone()),
            (few_idle_fair, from_ref(&fair), FEW, idle.clone()),
        ];
        for (n, (series, peers, waiters, hold)) in kinds.into_iter().enumerate() {
            let handovers = Handovers { peers, count: counts.handovers, waiters, hold };
            let name = name(&format!("handover/{round}/{n}"));
            let mut gauge = WaiterGauge::new(peers, waiters, meter);
            series.add(handovers.measure(&name, &mut gauge).await?);
        }
        let (peers, count) = (from_ref(rslock), counts.polled_handovers);
        let handovers = Handovers { peers, count, waiters: FEW, hold: busy.clone() };
        let name = name(&format!("handover/{round}"));
        let [rslock, of_python] = &mut self.polled;
        let mut gauge = WaiterGauge::new(peers, FEW, meter);
        rslock.add(handovers.measure(&name, &mut gauge).await?);
        of_python.add(python.handovers(FEW, count, meter).await?);
        Ok(())
    }
}

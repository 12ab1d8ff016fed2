//! All that is measured in rounds.

use std::slice::from_ref;

use anyhow::Context;
use fence::ResourceName;

use super::{
    handover::{self, CROWDED_HOLD, HOLD, Hold},
    peers::Peers,
    uncontended,
};
use crate::bench::{line::Line, peer::Fenced, work::Meter};

const FEW: usize = 2;
pub(super) const MANY: usize = 100;
/// What takes microseconds has several turns in a round: a machine that does something else for a
/// moment is then in the way of all alike.
const TURNS: usize = 10;

/// How often each is measured in a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) acquires: usize,
    pub(super) handovers: usize,
    pub(super) polled_handovers: usize,
}

/// All things that are measured in rounds.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) ping: Line,
    pub(super) ping_after_pause: Line,
    pub(super) fenced: Line,
    pub(super) fenced_new: Line,
    pub(super) rslock: Line,
    pub(super) rslock_new: Line,
    pub(super) python_ping: Line,
    pub(super) python: Line,
    pub(super) handovers: Handovers,
}

#[derive(Debug)]
pub(super) struct Handovers {
    pub(super) few: Line,
    pub(super) few_fair: Line,
    pub(super) many: Line,
    pub(super) many_fair: Line,
    pub(super) many_apart: Line,
    pub(super) many_apart_fair: Line,
    pub(super) few_idle: Line,
    pub(super) few_idle_fair: Line,
    pub(super) rslock: Line,
    pub(super) python: Line,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self {
            ping: Line::new("PING"),
            ping_after_pause: Line::new("PING after a pause of 5 ms"),
            fenced: Line::new("acquire, token, release"),
            fenced_new: Line::new("the same, a new name each time"),
            rslock: Line::new("rslock: acquire, release"),
            rslock_new: Line::new("the same, a new name each time"),
            python_ping: Line::new("Python: PING"),
            python: Line::new("Python: acquire, release"),
            handovers: Handovers {
                few: Line::new("2 wait"),
                few_fair: Line::new("2 wait, fair"),
                many: Line::new("100 wait"),
                many_fair: Line::new("100 wait, fair"),
                many_apart: Line::new("100 clients wait, busy for 10 ms"),
                many_apart_fair: Line::new("100 clients wait, fair"),
                few_idle: Line::new("2 wait, idle for 5 ms"),
                few_idle_fair: Line::new("2 wait, idle for 5 ms, fair"),
                rslock: Line::new("rslock: 2 wait"),
                python: Line::new("Python: 2 wait"),
            },
        }
    }

    /// Adds a round.
    pub(super) async fn measure(
        &mut self,
        round: usize,
        counts: Counts,
        peers: &mut Peers,
        meter: &mut Meter,
    ) -> anyhow::Result<()> {
        for turn in 0..TURNS {
            let acquires = counts.acquires.div_ceil(TURNS);
            self.measure_uncontended(&format!("{round}/{turn}"), acquires, peers, meter).await?;
        }
        let count = counts.handovers;
        let pauses = uncontended::pings_after_pauses(&mut peers.ping, count, meter).await?;
        self.ping_after_pause.add(pauses);
        self.handovers.measure(round, counts, peers, meter).await.context("a handover failed")
    }

    async fn measure_uncontended(
        &mut self,
        turn: &str,
        count: usize,
        Peers { ping, fenced, rslock, python, .. }: &mut Peers,
        meter: &mut Meter,
    ) -> anyhow::Result<()> {
        let same = vec![name("same"); count];
        let new: Vec<_> = (0..count).map(|n| name(&format!("new/{turn}/{n}"))).collect();
        self.ping.add(uncontended::pings(ping, count, meter).await?);
        self.fenced.add(uncontended::cycles(fenced, &same, meter).await?);
        self.rslock.add(uncontended::cycles(rslock, &same, meter).await?);
        self.fenced_new.add(uncontended::cycles(fenced, &new, meter).await?);
        self.rslock_new.add(uncontended::cycles(rslock, &new, meter).await?);
        self.python_ping.add(python.pings(count, meter).await?);
        self.python.add(python.cycles(count, meter).await?);
        Ok(())
    }

    pub(super) fn uncontended(&self) -> [&Line; 8] {
        [
            &self.ping,
            &self.ping_after_pause,
            &self.fenced,
            &self.fenced_new,
            &self.rslock,
            &self.rslock_new,
            &self.python_ping,
            &self.python,
        ]
    }
}

impl Handovers {
    async fn measure(
        &mut self,
        round: usize,
        counts: Counts,
        Peers { ping, fenced, fenced_apart, rslock, python }: &mut Peers,
        meter: &mut Meter,
    ) -> anyhow::Result<()> {
        let count = counts.handovers;
        let fair = fenced.fair();
        let apart_fair: Vec<_> = fenced_apart.iter().map(Fenced::fair).collect();
        let busy = || Hold::Busy(HOLD, ping.clone());
        let busy_for_long = Hold::Busy(CROWDED_HOLD, ping.clone());
        let lines = [
            (&mut self.few, from_ref(fenced), FEW, busy()),
            (&mut self.few_fair, from_ref(&fair), FEW, busy()),
            (&mut self.many, from_ref(fenced), MANY, busy()),
            (&mut self.many_fair, from_ref(&fair), MANY, busy()),
            (&mut self.many_apart, fenced_apart, MANY, busy_for_long),
            (&mut self.many_apart_fair, &apart_fair, MANY, busy()),
            (&mut self.few_idle, from_ref(fenced), FEW, Hold::Idle),
            (&mut self.few_idle_fair, from_ref(&fair), FEW, Hold::Idle),
        ];
        for (n, (line, peers, waiters, hold)) in lines.into_iter().enumerate() {
            let name = name(&format!("handover/{round}/{n}"));
            line.add(handover::measure(peers, &name, (waiters, count), hold, meter).await?);
        }
        let count = counts.polled_handovers;
        let name = name(&format!("handover/{round}"));
        let rslock = from_ref(rslock);
        self.rslock.add(handover::measure(rslock, &name, (FEW, count), busy(), meter).await?);
        self.python.add(python.handovers(FEW, count, meter).await?);
        Ok(())
    }

    /// Ours whose holders keep all awake.
    pub(super) fn busy(&self) -> [&Line; 6] {
        [
            &self.few,
            &self.few_fair,
            &self.many,
            &self.many_fair,
            &self.many_apart,
            &self.many_apart_fair,
        ]
    }

    /// Ours whose holders do nothing.
    pub(super) fn idle(&self) -> [&Line; 2] {
        [&self.few_idle, &self.few_idle_fair]
    }

    pub(super) fn all(&self) -> Vec<&Line> {
        [&self.busy()[..], &self.idle(), &[&self.rslock, &self.python]].concat()
    }
}

fn name(name: &str) -> ResourceName {
    name.parse().expect("the names of this bench are names")
}

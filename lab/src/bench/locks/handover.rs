//! Handover: the time from the start of a release until the next waiter has its lease.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use fence::ResourceName;
use tokio::{sync::watch, task::JoinSet, time::timeout};

use super::{gauge::Gauge, hold::Hold};
use crate::bench::{peer::Peer, series::Part};

/// How long it may take until all clients wait. It only ends a bench that hangs: with slow commits on a
/// busy machine, a hundred sessions take half a minute.
const GATHER_TIMEOUT: Duration = Duration::from_secs(180);

/// Hands a lock over from one client to the next.
pub(super) struct Handovers<'a, P> {
    /// The clients take turns over these connections.
    pub(super) peers: &'a [P],
    pub(super) count: usize,
    /// How many clients wait while one holds the lock.
    pub(super) waiters: usize,
    pub(super) hold: Arc<dyn Hold>,
}

impl<P: Peer> Handovers<'_, P> {
    /// Measures the handovers of one lock.
    ///
    /// Every client is a task of this one thread, so all times are of one clock. After a release, a
    /// client waits until the next client holds the lock, and then queues again: so the lock always
    /// goes to a client that waited. The work of the server is counted between two moments in which
    /// all others wait, without the holders' own requests.
    pub(super) async fn measure<G: Gauge>(
        self,
        name: &ResourceName,
        gauge: &mut G,
    ) -> anyhow::Result<Part<G::Work>> {
        let Self { peers, count, waiters, hold } = self;
        let turns = Arc::new(Turns::new(count, hold));
        gauge.start().await?;
        let mut clients = JoinSet::new();
        for peer in peers.iter().cycle().take(waiters + 1) {
            let (peer, name, turns) = (peer.clone(), name.clone(), turns.clone());
            clients.spawn(async move { turns.take_turns(&peer, &name).await });
        }
        let work = tokio::select! {
            work = async {
                turns.wait_for_turn_after(0).await;
                let all_wait = gauge.wait_for_all();
                timeout(GATHER_TIMEOUT, all_wait).await.context("not all clients came to wait")??;
                turns.hand_over(gauge).await
            } => work?,
            Some(ended) = clients.join_next() => {
                ended??;
                bail!("a client ended before all handovers were done");
            }
        };
        while let Some(ended) = clients.join_next().await {
            ended??;
        }
        let times = mem::take(&mut turns.lock_stopwatch().times);
        Ok(Part { times, work })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// The first client holds the lock until all others wait.
    Gathering,
    HandingOver,
    /// Each client acquires the lock once more, and ends.
    Ending,
}

/// The state that the clients share.
struct Turns {
    count: usize,
    hold: Arc<dyn Hold>,
    phase: watch::Sender<Phase>,
    /// How often the lock has been acquired.
    turn: watch::Sender<usize>,
    stopwatch: Mutex<Stopwatch>,
}

#[derive(Debug, Default)]
struct Stopwatch {
    release_begun: Option<Instant>,
    times: Vec<Duration>,
}

impl Turns {
    fn new(count: usize, hold: Arc<dyn Hold>) -> Self {
        Self {
            count,
            hold,
            phase: watch::Sender::new(Phase::Gathering),
            turn: watch::Sender::new(0),
            stopwatch: Mutex::default(),
        }
    }

    /// Is one client: acquires, holds and releases the lock until all handovers are done.
    async fn take_turns<P: Peer>(&self, peer: &P, name: &ResourceName) -> anyhow::Result<()> {
        loop {
            let held = peer.acquire(name).await?;
            let turn = self.start_turn(Instant::now());
            if turn > self.count {
                self.wait_for_phase(Phase::Ending).await;
                return peer.release(held).await;
            }
            self.wait_for_phase(Phase::HandingOver).await;
            self.hold.pass().await?;
            self.lock_stopwatch().release_begun = Some(Instant::now());
            peer.release(held).await?;
            self.wait_for_turn_after(turn).await;
        }
    }

    /// Ends the measurement of a handover, and returns the number of the turn.
    fn start_turn(&self, acquired_at: Instant) -> usize {
        let mut stopwatch = self.lock_stopwatch();
        if let Some(begun) = stopwatch.release_begun.take() {
            stopwatch.times.push(acquired_at - begun);
        }
        self.turn.send_modify(|turn| *turn += 1);
        *self.turn.borrow()
    }

    /// Runs all handovers, and returns what the server did for them.
    async fn hand_over<G: Gauge>(&self, gauge: &mut G) -> anyhow::Result<G::Work> {
        gauge.start().await?;
        self.phase.send_replace(Phase::HandingOver);
        self.wait_for_turn_after(self.count).await;
        gauge.wait_for_last().await?;
        let work = gauge.work().await?;
        self.phase.send_replace(Phase::Ending);
        Ok(work)
    }

    async fn wait_for_phase(&self, phase: Phase) {
        let reached = |now: &Phase| *now >= phase;
        self.phase.subscribe().wait_for(reached).await.expect("the sender is ours");
    }

    async fn wait_for_turn_after(&self, turn: usize) {
        let later = |now: &usize| *now > turn;
        self.turn.subscribe().wait_for(later).await.expect("the sender is ours");
    }

    fn lock_stopwatch(&self) -> MutexGuard<'_, Stopwatch> {
        self.stopwatch.lock().expect("no client panics while it holds the mutex")
    }
}

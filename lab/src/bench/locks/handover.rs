//! Handover: from the moment in which a holder begins to release until the next one has its lease.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use fence::ResourceName;
use redis::aio::MultiplexedConnection;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::peers::Waiter;
use crate::bench::{
    peer::Peer,
    samples::Samples,
    work::{Meter, Work},
};

/// For how long each holder keeps the lock: all others wait again when it lets go, and what a handover
/// runs through is not forgotten yet by the processor's caches, which others want, too.
pub(super) const HOLD: Duration = Duration::from_millis(1);
/// The same where each release has all clients ask Redis again.
pub(super) const CROWDED_HOLD: Duration = Duration::from_millis(10);
/// The same where nobody does anything meanwhile.
pub(super) const PAUSE: Duration = Duration::from_millis(5);
/// How long the others may take until all wait.
const GATHERED_WITHIN: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// What a holder does while it has the lock.
#[derive(Clone, Debug)]
pub(super) enum Hold {
    /// For so long, sends one PING after the other, so that neither this process nor Redis goes to
    /// sleep: a handover is then to be compared with a PING among many.
    Busy(Duration, MultiplexedConnection),
    /// Nothing, for the length of a pause: what has gone to sleep has to wake up first, as for a PING
    /// after a pause.
    Idle,
}

/// Hands a lock over from one to the next so many times, while so many others wait for it.
///
/// Every client is a task of this one thread, so one clock tells all times. With one peer, all share
/// its connection. Who has let go queues again as soon as the next one has the lock, and not before:
/// what is measured always goes to somebody who waited. What Redis did is told from one moment in
/// which all wait to another, and without the holders' PINGs.
pub(super) async fn measure<P: Waiter>(
    peers: &[P],
    name: &ResourceName,
    (waiters, handovers): (usize, usize),
    hold: Hold,
    meter: &mut Meter,
) -> anyhow::Result<(Samples, Work)> {
    let turns = Arc::new(Turns::new(handovers, hold));
    let begun = meter.read().await?;
    // The first holder's own, and those of the others until they wait.
    let asked = 1 + peers[0].asks_until_waiting(waiters, peers.len());
    let mut clients = JoinSet::new();
    for peer in peers.iter().cycle().take(waiters + 1) {
        let (peer, name, turns) = (peer.clone(), name.clone(), turns.clone());
        clients.spawn(async move { turns.take_one_after_the_other(&peer, &name).await });
    }
    let work = tokio::select! {
        work = async {
            turns.next_after(0).await;
            let all_wait = asked_so_often::<P>(asked, &begun, meter);
            timeout(GATHERED_WITHIN, all_wait).await.context("not all came to wait")??;
            turns.watch(meter).await
        } => work?,
        Some(ended) = clients.join_next() => {
            ended??;
            bail!("a client ended before the others had theirs");
        }
    };
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    let mut noted = turns.noted.lock().expect("nobody panics with it");
    Ok((std::mem::take(&mut noted.samples), work.without("ping")))
}

/// Waits until Redis has been asked for the lock so often since an earlier moment.
async fn asked_so_often<P: Waiter>(
    asked: usize,
    begun: &Work,
    meter: &mut Meter,
) -> anyhow::Result<()> {
    while meter.read().await?.since(begun).calls_of(P::ASKS_BY) < asked as u64 {
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

impl Hold {
    async fn pass(&self) -> anyhow::Result<()> {
        match self {
            Self::Busy(time, connection) => {
                let mut connection = connection.clone();
                let begun = Instant::now();
                while begun.elapsed() < *time {
                    redis::cmd("PING").exec_async(&mut connection).await?;
                }
            }
            Self::Idle => sleep(PAUSE).await,
        }
        Ok(())
    }
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// The first has the lock, the others come.
    Gathering,
    Handing,
    /// All has been measured. Each takes the lock once more, and goes.
    Ending,
}

/// Whose turn it is.
#[derive(Debug)]
struct Turns {
    handovers: usize,
    hold: Hold,
    phase: watch::Sender<Phase>,
    /// How often the lock has been taken.
    taken: watch::Sender<usize>,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    release_begun: Option<Instant>,
    samples: Samples,
}

impl Turns {
    fn new(handovers: usize, hold: Hold) -> Self {
        Self {
            handovers,
            hold,
            phase: watch::Sender::new(Phase::Gathering),
            taken: watch::Sender::new(0),
            noted: Mutex::default(),
        }
    }

    async fn take_one_after_the_other<P: Peer>(
        &self,
        peer: &P,
        name: &ResourceName,
    ) -> anyhow::Result<()> {
        loop {
            let held = peer.acquire(name).await?;
            let turn = self.taken(Instant::now());
            if turn > self.handovers {
                self.reached(Phase::Ending).await;
                return peer.release(held).await;
            }
            self.reached(Phase::Handing).await;
            self.hold.pass().await?;
            self.noted.lock().expect("nobody panics with it").release_begun = Some(Instant::now());
            peer.release(held).await?;
            self.next_after(turn).await;
        }
    }

    /// Notes that somebody has the lock now, and for the how manieth time.
    fn taken(&self, had: Instant) -> usize {
        let mut noted = self.noted.lock().expect("nobody panics with it");
        if let Some(begun) = noted.release_begun.take() {
            noted.samples.add(had - begun);
        }
        self.taken.send_modify(|taken| *taken += 1);
        *self.taken.borrow()
    }

    async fn watch(&self, meter: &mut Meter) -> anyhow::Result<Work> {
        let before = meter.read().await?;
        self.phase.send_replace(Phase::Handing);
        self.next_after(self.handovers).await;
        // Who has let go last still has to queue again.
        sleep(CROWDED_HOLD).await;
        let after = meter.read().await?;
        self.phase.send_replace(Phase::Ending);
        Ok(after.since(&before))
    }

    async fn reached(&self, phase: Phase) {
        let reached = |now: &Phase| *now >= phase;
        self.phase.subscribe().wait_for(reached).await.expect("the sender is ours");
    }

    async fn next_after(&self, turn: usize) {
        let next = |taken: &usize| *taken > turn;
        self.taken.subscribe().wait_for(next).await.expect("the sender is ours");
    }
}

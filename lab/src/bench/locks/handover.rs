//! Handover: the time from the start of a release until the next waiter has its lease.

use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use async_trait::async_trait;
use fence::ResourceName;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::service::Service;
use crate::bench::{
    peer::{Peer, new_name},
    subject::Times,
    work::Work,
};

/// How long it may take until all clients wait. It only ends a bench that hangs: with slow commits on a
/// busy machine, a hundred sessions take half a minute.
const GATHER_TIMEOUT: Duration = Duration::from_secs(180);

/// How the clients wait and hold.
#[async_trait]
pub(super) trait Manner: Send + Sync {
    /// Waits until all clients but the holder wait for the lock.
    async fn all_wait(&self) -> anyhow::Result<()>;

    /// Passes the time of one holder.
    async fn hold(&self) -> anyhow::Result<()>;
}

/// What a holder does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rest {
    /// Sends requests, so that neither this process nor the server goes to sleep. The handover is then
    /// comparable with a round trip among many.
    Busy(Duration),
    /// Sleeps. The handover is then comparable with a round trip after a pause, because both have to
    /// wake this process and the server.
    Idle(Duration),
}

impl Rest {
    pub(super) async fn pass(self, service: &dyn Service) -> anyhow::Result<()> {
        match self {
            Self::Busy(time) => {
                let begun = Instant::now();
                while begun.elapsed() < time {
                    service.round_trip().await?;
                }
            }
            Self::Idle(time) => sleep(time).await,
        }
        Ok(())
    }
}

/// Hands a lock over from one client to the next.
pub(super) struct Handover<'a, P> {
    /// The clients take turns over these connections.
    pub(super) peers: &'a [P],
    /// How many clients wait while one holds the lock.
    pub(super) waiters: usize,
    pub(super) manner: Arc<dyn Manner>,
}

impl<P: Peer> Handover<'_, P> {
    /// Measures the handovers of a new lock.
    ///
    /// Every client is a task of this one thread, so all times are of one clock. After a release, a
    /// client waits until the next client holds the lock, and then queues again: so the lock always
    /// goes to a client that waited. The work of the server is counted between two moments in which
    /// all others wait, without the requests of holders, which are PINGs where such are counted.
    pub(super) async fn measure(
        self,
        count: usize,
        work: impl AsyncFn() -> anyhow::Result<Work>,
    ) -> anyhow::Result<Times> {
        let Self { peers, waiters, manner } = self;
        let turns = Arc::new(Turns { count, manner, state: watch::Sender::default() });
        let name = new_name();
        let mut clients = JoinSet::new();
        for peer in peers.iter().cycle().take(waiters + 1) {
            let (peer, name, turns) = (peer.clone(), name.clone(), turns.clone());
            clients.spawn(async move { turns.take_turns(&peer, &name).await });
        }
        let work = tokio::select! {
            work = async {
                turns.until(|state| state.turn > 0).await;
                let all_wait = timeout(GATHER_TIMEOUT, turns.manner.all_wait());
                all_wait.await.context("not all clients came to wait")??;
                let before = work().await?;
                turns.state.send_modify(|state| state.phase = Phase::HandingOver);
                turns.until(|state| state.turn > count).await;
                // The last client that released waits again.
                turns.manner.hold().await?;
                let work = work().await?.since(&before).without("ping");
                turns.state.send_modify(|state| state.phase = Phase::Ending);
                anyhow::Ok(work)
            } => work?,
            Some(ended) = clients.join_next() => {
                ended??;
                bail!("a client ended before all handovers were done");
            }
        };
        while let Some(ended) = clients.join_next().await {
            ended??;
        }
        let mut times = Vec::new();
        turns.state.send_modify(|state| times = mem::take(&mut state.times));
        Ok(Times { times, work: vec![work] })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// The first client holds the lock until all others wait.
    #[default]
    Gathering,
    HandingOver,
    /// Each client acquires the lock once more, and ends.
    Ending,
}

/// What the clients share.
struct Turns {
    count: usize,
    manner: Arc<dyn Manner>,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// How often the lock has been acquired.
    turn: usize,
    release_begun: Option<Instant>,
    times: Vec<Duration>,
}

impl Turns {
    /// Is one client: acquires, holds and releases the lock until all handovers are done.
    async fn take_turns<P: Peer>(&self, peer: &P, name: &ResourceName) -> anyhow::Result<()> {
        loop {
            let held = peer.acquire(name).await?;
            let turn = self.start_turn(Instant::now());
            if turn > self.count {
                self.until(|state| state.phase == Phase::Ending).await;
                return peer.release(held).await;
            }
            self.until(|state| state.phase >= Phase::HandingOver).await;
            self.manner.hold().await?;
            // Nobody waits for this.
            self.state.send_if_modified(|state| {
                state.release_begun = Some(Instant::now());
                false
            });
            peer.release(held).await?;
            self.until(|state| state.turn > turn).await;
        }
    }

    /// Ends the measurement of a handover, and returns the number of the turn.
    fn start_turn(&self, acquired_at: Instant) -> usize {
        let mut turn = 0;
        self.state.send_modify(|state| {
            let begun = state.release_begun.take();
            state.times.extend(begun.map(|begun| acquired_at - begun));
            state.turn += 1;
            turn = state.turn;
        });
        turn
    }

    async fn until(&self, reached: impl Fn(&State) -> bool) {
        let mut state = self.state.subscribe();
        state.wait_for(reached).await.expect("the sender is ours");
    }
}

//! One attempt to acquire a lock: rounds, until no rival splits the nodes any more.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fence::Holder;
use tokio::{sync::oneshot, time::sleep};

use super::{nodes::Nodes, round::Round, tally::Outcome};
use crate::{
    Moment, Ttl,
    backend::{Attempt, BackendError, Ownership},
    redis::keys::Keys,
};

/// How often in a row a round may be split between rivals before the lock counts as contended.
const MOST_SPLITS: u32 = 8;
/// How long split rounds are retried.
const SPLIT_PATIENCE: Duration = Duration::from_millis(300);
const LONGEST_SPLIT_PAUSE: Duration = Duration::from_millis(100);

/// An attempt to acquire a lock.
#[derive(Clone, Copy)]
pub(super) struct Acquire<'a> {
    /// How many rounds this client has started.
    pub(super) rounds: &'a AtomicU64,
    pub(super) keys: &'a Keys,
    pub(super) holder: &'a Holder,
    pub(super) ttl: Ttl,
}

impl Acquire<'_> {
    /// Runs rounds until the lock is acquired, or another holder has it.
    pub(super) async fn run(self, nodes: Arc<Nodes>) -> Result<Attempt, BackendError> {
        // Counted from the first answers: before them, the nodes may have to be connected.
        let mut first_split = None;
        let mut splits = 0;
        nodes.check_ttl(self.ttl)?;
        loop {
            let asked = Moment::now();
            let holder = self.new_holder();
            let contention = match self.run_round(&nodes, holder.clone()).await? {
                Outcome::Sealed { token, accepted } => {
                    let late = |()| unavailable("the lock was accepted too late");
                    accepted.send(()).map_err(late)?;
                    let ownership = Ownership { holder, grant: token };
                    return Ok(Attempt::Granted { token, ownership, asked });
                }
                Outcome::Held(contention) => return Ok(Attempt::Busy(contention)),
                Outcome::Split(contention) => contention,
                Outcome::TooFewAnswers(errors) => return Err(nodes.no_majority(&errors)),
            };
            let first_split = *first_split.get_or_insert_with(Moment::now);
            if splits == MOST_SPLITS || first_split.elapsed() > SPLIT_PATIENCE {
                return Ok(Attempt::Busy(contention));
            }
            // Rivals that meet again wait for random, growing times, until one of them is alone.
            splits += 1;
            let longest = (asked.elapsed() * 2_u32.pow(splits)).min(LONGEST_SPLIT_PAUSE);
            sleep(longest.mul_f64(fastrand::f64())).await;
        }
    }

    /// Returns the holder of a new round.
    fn new_holder(&self) -> Holder {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        let holder = format!("{}-{round}", self.holder.as_str());
        holder.parse().expect("a random holder and a number are visible ASCII, and short")
    }

    /// Runs one round in the background, and returns its outcome.
    async fn run_round(&self, nodes: &Arc<Nodes>, holder: Holder) -> Result<Outcome, BackendError> {
        let (report, outcome) = oneshot::channel();
        let round = Round::new(nodes.clone(), self.keys.clone(), holder, self.ttl);
        nodes.background().spawn(round.run(report));
        outcome.await.map_err(|_| unavailable("no majority has sealed a token in time"))
    }
}

fn unavailable(reason: &'static str) -> BackendError {
    BackendError::Unavailable(reason.into())
}

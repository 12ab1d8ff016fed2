//! A queued transaction, and the answer that its handler waits for.

use std::{sync::Arc, time::Duration};

use fence::ResourceName;
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::Instant,
};

use crate::{
    memory_budget::SMALL_BYTES,
    operation::{Action, Operation},
    transaction::{DecidedTransaction, Transaction},
};

/// How long a job may wait in all. A database that answers slowly must not keep clients waiting for minutes.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// How long a job is tried again from its first obstacle on, if there still is one.
const BEHIND_OBSTACLES: Duration = Duration::from_secs(5);
/// How long a job is tried again in batches from its first obstacle on. A rival may always be faster there. After
/// that, it is tried under the locks of its rows, which keep rivals away.
const BEFORE_LOCKS: Duration = Duration::from_millis(50);

/// A queued transaction.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) transaction: Arc<Transaction>,
    reply: oneshot::Sender<Result<DecidedTransaction, Unavailable>>,
    queued: Instant,
    pub(super) obstacle: Option<Obstacle>,
    /// When an obstacle was first in its way.
    hindered: Option<Instant>,
    /// The job's places in the queue, which are free again once the job is dropped.
    _places: OwnedSemaphorePermit,
}

/// What was in the way of a job's last try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// A rival changed a row first.
    Rivals,
    /// The row of this resource was locked.
    Lock(ResourceName),
}

impl Job {
    pub(super) fn new(
        transaction: Arc<Transaction>,
        reply: oneshot::Sender<Result<DecidedTransaction, Unavailable>>,
        places: OwnedSemaphorePermit,
    ) -> Self {
        let queued = Instant::now();
        Self { transaction, reply, queued, obstacle: None, hindered: None, _places: places }
    }

    /// When it was queued.
    pub(super) fn queued(&self) -> Instant {
        self.queued
    }

    /// The resources that it reads.
    pub(super) fn reads(&self) -> impl Iterator<Item = &ResourceName> {
        let reads = self.transaction.writes.iter().filter(|write| is_read(write));
        reads.map(|read| &read.resource)
    }

    /// The bytes of values that it writes, or that may be loaded for it.
    pub(super) fn value_bytes(&self) -> usize {
        let bytes =
            |write: &Operation| if is_read(write) { SMALL_BYTES } else { write.value_bytes() };
        self.transaction.writes.iter().map(bytes).sum()
    }

    /// Notes what was in the way of its last try.
    pub(super) fn note_obstacle(&mut self, obstacle: Option<Obstacle>) {
        if obstacle.is_some() {
            self.hindered.get_or_insert_with(Instant::now);
        }
        self.obstacle = obstacle;
    }

    /// The resource in whose lane it must wait: a locked one, or any if its rivals are always faster.
    pub(super) fn blocked_by(&self) -> Option<&ResourceName> {
        match self.obstacle.as_ref()? {
            Obstacle::Lock(resource) => Some(resource),
            Obstacle::Rivals => {
                let needs_locks = self.hindered?.elapsed() >= BEFORE_LOCKS;
                self.transaction.resources().next().filter(|_| needs_locks)
            }
        }
    }

    /// Whether it writes or compares the resource.
    pub(super) fn names(&self, resource: &str) -> bool {
        self.transaction.resources().any(|named| named.as_str() == resource)
    }

    pub(super) fn answer(self, decision: Result<DecidedTransaction, Unavailable>) {
        // If the client has disconnected, its handler no longer waits for the answer.
        let _ = self.reply.send(decision);
    }

    /// Answers that it did not take effect, and never will.
    pub(super) fn give_up(self, reason: &str) {
        let outcome = UnavailableOutcome::None;
        self.answer(Err(Unavailable { outcome, reason: reason.to_owned() }));
    }

    /// Why it has waited for too long, if it has.
    fn lateness(&self) -> Option<&'static str> {
        let reason = match &self.obstacle {
            None => "the database has been too slow for too long",
            Some(Obstacle::Rivals) => "other clients kept changing the resource for too long",
            Some(Obstacle::Lock(_)) => "other transactions kept the resource locked for too long",
        };
        let hindered = self.hindered.filter(|_| self.obstacle.is_some());
        let is_late = self.queued.elapsed() >= LONGEST_WAIT
            || hindered.is_some_and(|hindered| hindered.elapsed() >= BEHIND_OBSTACLES);
        is_late.then_some(reason)
    }
}

/// The jobs that are still to be tried. Answers those that have waited for too long. Nobody waits for a job
/// whose client has disconnected: it may have sent its operation once more, under another token.
pub(super) fn still_wanted(jobs: Vec<Job>) -> Vec<Job> {
    let mut wanted = Vec::with_capacity(jobs.len());
    for job in jobs.into_iter().filter(|job| !job.reply.is_closed()) {
        let Some(reason) = job.lateness() else {
            wanted.push(job);
            continue;
        };
        if job.obstacle.is_some() {
            let resource = job.transaction.resources().next();
            tracing::warn!(resource = resource.map(|name| name.as_str()), "{reason}");
        }
        job.give_up(reason);
    }
    wanted
}

fn is_read(operation: &Operation) -> bool {
    matches!(operation.action, Action::Read)
}

/// No decision could be made, or none can be reported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct Unavailable {
    /// What may have happened nevertheless.
    pub(crate) outcome: UnavailableOutcome,
    /// Why there is no decision.
    pub(crate) reason: String,
}

/// What may have happened to an operation without a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnavailableOutcome {
    /// The operation did not take effect, and never will.
    None,
    /// The operation may have taken effect.
    Unknown,
}

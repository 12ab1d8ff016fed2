//! A queued operation, and the answer that its handler waits for.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use fence::ResourceName;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    memory_budget::SMALL_BYTES,
    operation::{Action, Decided, Operation},
    transaction::{DecidedTransaction, Transaction},
};

/// Jobs by resource, in the byte order of the names. The jobs of one resource are in order of
/// arrival.
pub(super) type JobsByResource = BTreeMap<ResourceName, Vec<Job>>;

/// A queued operation.
#[derive(Debug)]
pub(super) struct Job<O = Operation, D = Decided> {
    pub(super) operation: O,
    reply: oneshot::Sender<Result<D, Unavailable>>,
    queued: Instant,
    /// The job's places in the queue, which are free again once the job is dropped.
    _places: OwnedSemaphorePermit,
}

/// A queued transaction.
pub(super) type TransactionJob = Job<Arc<Transaction>, DecidedTransaction>;

impl Job {
    pub(super) fn is_read(&self) -> bool {
        matches!(self.operation.action, Action::Read)
    }

    /// The bytes of values that it writes, or that may be loaded for it.
    pub(super) fn value_bytes(&self) -> usize {
        if self.is_read() { SMALL_BYTES } else { self.operation.value_bytes() }
    }
}

impl<O, D> Job<O, D> {
    pub(super) fn new(
        operation: O,
        reply: oneshot::Sender<Result<D, Unavailable>>,
        places: OwnedSemaphorePermit,
    ) -> Self {
        Self { operation, reply, queued: Instant::now(), _places: places }
    }

    pub(super) fn answer(self, decision: Result<D, Unavailable>) {
        // If the client has disconnected, its handler no longer waits for the answer.
        let _ = self.reply.send(decision);
    }

    /// Whether nobody waits for the answer any more: the client has disconnected.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    /// When the operation was queued.
    pub(super) fn queued(&self) -> Instant {
        self.queued
    }

    /// How long the operation has been queued.
    pub(super) fn waited(&self) -> Duration {
        self.queued.elapsed()
    }
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

//! The lane of one resource.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use fence::ResourceName;

use crate::{
    committer::{
        batch_lane::{LONGEST_WAIT, MAX_BATCH_OPERATIONS},
        group_commit::GroupCommit,
        job::{Job, Unavailable, UnavailableOutcome},
    },
    operation::{Decided, Operation},
    transaction::{DecidedTransaction, Transaction},
};

/// A job that one lane can do.
pub(in crate::committer) trait OnOneResource: Send + Sized + 'static {
    /// The resource.
    fn resource(&self) -> ResourceName;

    /// Decides jobs on one resource, answers all that it can, and returns the others, in order of arrival.
    fn commit(
        group_commit: &GroupCommit,
        batch: Vec<Self>,
    ) -> impl Future<Output = Vec<Self>> + Send;
}

impl OnOneResource for Job<Operation, Decided> {
    fn resource(&self) -> ResourceName {
        self.operation.resource.clone()
    }

    async fn commit(group_commit: &GroupCommit, batch: Vec<Self>) -> Vec<Self> {
        let mut undecided = group_commit.commit(batch).await;
        undecided.blocked.append(&mut undecided.contended);
        undecided.blocked
    }
}

impl OnOneResource for Job<Arc<Transaction>, DecidedTransaction> {
    fn resource(&self) -> ResourceName {
        self.operation.resources().next().expect("a transaction has a write").clone()
    }

    async fn commit(group_commit: &GroupCommit, batch: Vec<Self>) -> Vec<Self> {
        group_commit.commit_transactions_on_one(batch).await
    }
}

/// The jobs of a resource.
pub(super) struct Lane<O, D> {
    waiting: VecDeque<Job<O, D>>,
    /// When the oldest job of the change was queued that is being committed.
    committing: Option<Instant>,
}

impl<O, D> Default for Lane<O, D> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), committing: None }
    }
}

impl<O, D> Lane<O, D>
where
    Job<O, D>: OnOneResource,
{
    /// Adds a job, and returns whether the lane has become ready.
    pub(super) fn push(&mut self, job: Job<O, D>) -> bool {
        let becomes_ready = self.waiting.is_empty() && self.committing.is_none();
        self.waiting.push_back(job);
        becomes_ready
    }

    /// Takes the jobs of the next change, if there are any. Nobody waits for a job whose client has
    /// disconnected.
    pub(super) fn begin(&mut self) -> Option<Vec<Job<O, D>>> {
        self.waiting.retain(|job| !job.is_abandoned());
        // A store that answers slowly must not keep clients waiting for minutes.
        while let Some(job) = self.waiting.pop_front_if(|job| job.waited() > LONGEST_WAIT) {
            let reason = "the database has been too slow for too long".to_owned();
            job.answer(Err(Unavailable { outcome: UnavailableOutcome::None, reason }));
        }
        self.committing = Some(self.waiting.front()?.queued());
        let count = self.waiting.len().min(MAX_BATCH_OPERATIONS);
        Some(self.waiting.drain(..count).collect())
    }

    /// Ends the change, and puts back what is undecided.
    pub(super) fn end(&mut self, undecided: Vec<Job<O, D>>) {
        for job in undecided.into_iter().rev() {
            self.waiting.push_front(job);
        }
        self.committing = None;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When its oldest job was queued.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(Job::queued).into_iter().chain(self.committing).min()
    }
}

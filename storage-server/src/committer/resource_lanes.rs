//! The lanes of a store that changes each resource by itself: one for each resource with queued jobs.
//!
//! The jobs that queue for a resource while it is being changed share its next change. A resource whose
//! change takes long holds up no other.

use std::{
    collections::{HashMap, VecDeque},
    panic,
    sync::Arc,
    time::Instant,
};

use fence::ResourceName;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    batch_lane::{LONGEST_WAIT, MAX_BATCH_OPERATIONS},
    folded::Undecided,
    group_commit::GroupCommit,
    job::{Job, Unavailable, UnavailableOutcome},
    oldest::Oldest,
};

/// How many resources are changed at once.
const MAX_CONCURRENT: usize = 256;

/// The lane of a resource.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Job>,
    /// When the oldest job was queued that is being committed.
    committing: Option<Instant>,
}

impl Lane {
    /// Takes the jobs of the next change. Nobody waits for a job whose client has disconnected.
    fn take_batch(&mut self) -> Vec<Job> {
        self.waiting.retain(|job| !job.is_abandoned());
        // A store that answers slowly must not keep clients waiting for minutes.
        while let Some(job) = self.waiting.pop_front_if(|job| job.waited() > LONGEST_WAIT) {
            let reason = "the database has been too slow for too long".to_owned();
            job.answer(Err(Unavailable { outcome: UnavailableOutcome::None, reason }));
        }
        let count = self.waiting.len().min(MAX_BATCH_OPERATIONS);
        self.waiting.drain(..count).collect()
    }

    /// When its oldest job was queued.
    fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(Job::queued).into_iter().chain(self.committing).min()
    }
}

/// Commits the queued jobs, resource by resource, until `close` is cancelled and all are answered.
pub(super) async fn commit_resources(
    group_commit: Arc<GroupCommit>,
    mut queued: mpsc::UnboundedReceiver<Job>,
    close: CancellationToken,
    oldest: Oldest,
) {
    let mut lanes: HashMap<ResourceName, Lane> = HashMap::new();
    // Idle lanes that have jobs, in order of arrival.
    let mut ready: VecDeque<ResourceName> = VecDeque::new();
    let mut commits = JoinSet::new();
    let mut may_receive = true;
    loop {
        // 1. Wait for a job, or for the end of a commit. A closed queue hands out its last jobs, and then
        //    nothing.
        let mut arrived = None;
        tokio::select! {
            job = queued.recv(), if may_receive => match job {
                Some(job) => arrived = Some(job),
                None => may_receive = false,
            },
            () = close.cancelled(), if !queued.is_closed() => queued.close(),
            Some(ended) = commits.join_next() => {
                let (resource, undecided): (ResourceName, Undecided) =
                    ended.unwrap_or_else(|error| panic::resume_unwind(error.into_panic()));
                let lane = lanes.get_mut(&resource).expect("it is kept while it commits");
                lane.committing = None;
                // Jobs that lost to a rival go back in front, and are retried at once. The store was
                // asked meanwhile, so this is no busy loop.
                for job in undecided.contended.into_iter().rev() {
                    lane.waiting.push_front(job);
                }
                for job in undecided.blocked.into_iter().rev() {
                    lane.waiting.push_front(job);
                }
                if lane.waiting.is_empty() {
                    lanes.remove(&resource);
                } else {
                    ready.push_back(resource);
                }
            }
            else => return,
        }

        // 2. Put new jobs into the lanes of their resources.
        while let Some(job) = arrived.take().or_else(|| queued.try_recv().ok()) {
            let resource = job.operation.resource.clone();
            let lane = lanes.entry(resource.clone()).or_default();
            if lane.waiting.is_empty() && lane.committing.is_none() {
                ready.push_back(resource);
            }
            lane.waiting.push_back(job);
        }

        // 3. Commit the jobs of idle lanes.
        while commits.len() < MAX_CONCURRENT
            && let Some(resource) = ready.pop_front()
        {
            let lane = lanes.get_mut(&resource).expect("it is kept while it has jobs");
            let batch = lane.take_batch();
            lane.committing = batch.first().map(Job::queued);
            if batch.is_empty() {
                lanes.remove(&resource);
                continue;
            }
            let group_commit = group_commit.clone();
            commits.spawn(async move { (resource, group_commit.commit(batch).await) });
        }
        oldest.note_queued(lanes.values().filter_map(Lane::oldest).min());
    }
}

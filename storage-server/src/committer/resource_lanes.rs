//! The lanes of a store that changes each resource by itself: one for each resource with queued jobs.
//!
//! The jobs that queue for a resource while it is being changed share its next change. A resource whose
//! change takes long holds up no other.

mod lane;

use std::{
    collections::{HashMap, VecDeque},
    panic,
    sync::Arc,
};

use fence::ResourceName;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use self::lane::{Lane, OnOneResource};
use super::{group_commit::GroupCommit, job::Job, oldest::Oldest};

/// How many resources are changed at once.
const MAX_CONCURRENT: usize = 256;

/// The lanes of resources that have jobs.
struct Lanes<O, D> {
    lanes: HashMap<ResourceName, Lane<O, D>>,
    /// Idle lanes, in order of arrival.
    ready: VecDeque<ResourceName>,
}

impl<O, D> Lanes<O, D>
where
    Job<O, D>: OnOneResource,
{
    fn new() -> Self {
        Self { lanes: HashMap::new(), ready: VecDeque::new() }
    }

    /// Puts a job into the lane of its resource.
    fn push(&mut self, job: Job<O, D>) {
        let resource = job.resource();
        let lane = self.lanes.entry(resource.clone()).or_default();
        if lane.push(job) {
            self.ready.push_back(resource);
        }
    }

    /// Takes the next change that may begin.
    fn begin(&mut self) -> Option<(ResourceName, Vec<Job<O, D>>)> {
        loop {
            let resource = self.ready.pop_front()?;
            let lane = self.lanes.get_mut(&resource).expect("it is kept while it has jobs");
            match lane.begin() {
                Some(batch) => return Some((resource, batch)),
                None => drop(self.lanes.remove(&resource)),
            }
        }
    }

    /// Ends a change, whose undecided jobs go back in front.
    fn end(&mut self, resource: ResourceName, undecided: Vec<Job<O, D>>) {
        let lane = self.lanes.get_mut(&resource).expect("it is kept while it commits");
        lane.end(undecided);
        if lane.is_empty() {
            self.lanes.remove(&resource);
        } else {
            self.ready.push_back(resource);
        }
    }
}

/// Commits the queued jobs, resource by resource, until `close` is cancelled and all are answered.
pub(super) async fn commit_resources<O, D>(
    group_commit: Arc<GroupCommit>,
    mut queued: mpsc::UnboundedReceiver<Job<O, D>>,
    close: CancellationToken,
    oldest: Oldest,
) where
    Job<O, D>: OnOneResource,
{
    let mut lanes = Lanes::new();
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
                // Jobs that lost to a rival are retried at once. The store was asked meanwhile, so this
                // is no busy loop.
                let (resource, undecided) =
                    ended.unwrap_or_else(|error| panic::resume_unwind(error.into_panic()));
                lanes.end(resource, undecided);
            }
            else => return,
        }

        // 2. Put new jobs into the lanes of their resources.
        while let Some(job) = arrived.take().or_else(|| queued.try_recv().ok()) {
            lanes.push(job);
        }

        // 3. Commit the jobs of idle lanes.
        while commits.len() < MAX_CONCURRENT
            && let Some((resource, batch)) = lanes.begin()
        {
            let group_commit = group_commit.clone();
            commits.spawn(async move { (resource, Job::commit(&group_commit, batch).await) });
        }
        oldest.note_queued(lanes.lanes.values().filter_map(Lane::oldest).min());
    }
}

#[cfg(test)]
mod tests;

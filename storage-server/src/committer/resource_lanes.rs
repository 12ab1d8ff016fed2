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

use self::lane::{Commit, Lane, OnOneResource};
use super::{batch_lane::ASSUMED_PART, group_commit::GroupCommit, job::Job, oldest::Oldest};

/// How many resources are changed at once.
const MAX_CONCURRENT: usize = 256;
/// How many bytes the values have together that are loaded at once, if each has the part of the largest size
/// that is assumed.
const MAX_LOADED_BYTES: usize = 64 << 20;

/// How many changes at once may load a value, if one has at most so many bytes.
fn most_loads(max_value_bytes: usize) -> usize {
    let assumed = (max_value_bytes / ASSUMED_PART).max(1);
    (MAX_LOADED_BYTES / assumed).clamp(1, MAX_CONCURRENT)
}

/// The lanes of resources that have jobs.
struct Lanes<O, D> {
    lanes: HashMap<ResourceName, Lane<O, D>>,
    /// Idle lanes, in order of arrival.
    ready: VecDeque<ResourceName>,
    /// Idle lanes whose next change must load a value, while others load as much as may be. They hold up
    /// no lanes that need no value.
    waiting_to_load: VecDeque<ResourceName>,
    /// How many more changes may load a value.
    free_loads: usize,
}

impl<O, D> Lanes<O, D>
where
    Job<O, D>: OnOneResource,
{
    fn new(most_loads: usize) -> Self {
        Self {
            lanes: HashMap::new(),
            ready: VecDeque::new(),
            waiting_to_load: VecDeque::new(),
            free_loads: most_loads,
        }
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
            let waiting = (self.free_loads > 0).then(|| self.waiting_to_load.pop_front()).flatten();
            let resource = waiting.or_else(|| self.ready.pop_front())?;
            let lane = self.lanes.get_mut(&resource).expect("it is kept while it has jobs");
            match lane.begin(self.free_loads) {
                Commit::Nothing => drop(self.lanes.remove(&resource)),
                Commit::MustWaitToLoad => self.waiting_to_load.push_back(resource),
                Commit::Begun { batch, loads } => {
                    self.free_loads -= usize::from(loads);
                    return Some((resource, batch));
                }
            }
        }
    }

    /// Ends a change, whose undecided jobs go back in front.
    fn end(&mut self, resource: ResourceName, undecided: Vec<Job<O, D>>) {
        let lane = self.lanes.get_mut(&resource).expect("it is kept while it commits");
        self.free_loads += usize::from(lane.end(undecided));
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
    max_value_bytes: usize,
) where
    Job<O, D>: OnOneResource,
{
    let mut lanes = Lanes::new(most_loads(max_value_bytes));
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

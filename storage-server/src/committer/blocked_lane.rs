//! The blocked lane, for resources that rivals or other people's locks keep from being changed.
//!
//! Each resource gets a transaction of its own, in which it is decided under its row's lock, so
//! that a blocked resource delays no other one.

use std::{
    collections::{BTreeMap, HashSet},
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use fence::ResourceName;
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

use super::{
    group_commit::GroupCommit,
    job::{Job, JobsByResource, Unavailable, UnavailableOutcome},
    oldest::Oldest,
};

/// How many blocked resources are tried at once. The other connections are left to other work.
const MAX_CONCURRENT: usize = 4;
/// How many operations may wait for one blocked resource.
const MAX_WAITING: usize = 256;
/// How long to wait before blocked resources are tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The entrance of the lane. The lane ends after the entrance is dropped.
pub(super) struct BlockedLane {
    jobs: mpsc::UnboundedSender<Job>,
    resources: BlockedResources,
}

/// The jobs that go to the lane.
pub(super) struct BlockedJobs {
    jobs: mpsc::UnboundedReceiver<Job>,
    resources: BlockedResources,
}

/// The resources whose jobs go to the lane.
type BlockedResources = Arc<Mutex<HashSet<ResourceName>>>;

impl BlockedLane {
    pub(super) fn new() -> (Self, BlockedJobs) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let resources = BlockedResources::default();
        (
            Self { jobs: sender, resources: resources.clone() },
            BlockedJobs { jobs: receiver, resources },
        )
    }

    /// Splits the jobs into those on blocked resources and the others.
    pub(super) fn split(&self, jobs: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
        let blocked = self.resources.lock().expect("no panic while it is held");
        jobs.into_iter().partition(|job| blocked.contains(&job.operation.resource))
    }

    /// Blocks the job's resource, and puts the job into the lane.
    pub(super) fn push(&self, job: Job) {
        let mut blocked = self.resources.lock().expect("no panic while it is held");
        blocked.insert(job.operation.resource.clone());
        self.jobs.send(job).expect("the lane runs as long as its entrance exists");
    }
}

/// Commits the jobs on blocked resources, until the entrance is dropped and all are answered.
pub(super) async fn commit_blocked(
    group_commit: Arc<GroupCommit>,
    mut blocked: BlockedJobs,
    oldest: Oldest,
) {
    let mut waiting: JobsByResource = BTreeMap::new();
    loop {
        // 1. Wait for a job, unless some wait for another try.
        if waiting.is_empty() {
            match blocked.jobs.recv().await {
                Some(job) => waiting.entry(job.operation.resource.clone()).or_default().push(job),
                None => return,
            }
        }

        // 2. Take all other jobs that have arrived. One resource may not fill the whole queue while
        //    its row is locked.
        while let Ok(job) = blocked.jobs.try_recv() {
            let jobs = waiting.entry(job.operation.resource.clone()).or_default();
            if jobs.len() < MAX_WAITING {
                jobs.push(job);
            } else {
                job.answer(Err(Unavailable {
                    outcome: UnavailableOutcome::None,
                    reason: "the resource is locked, and too many operations wait for it"
                        .to_owned(),
                }));
            }
        }

        // 3. Try each resource in a transaction of its own, a few at a time. Nobody waits for a job
        //    whose client has disconnected.
        waiting.retain(|resource, jobs| {
            jobs.retain(|job| !job.is_abandoned());
            if jobs.is_empty() {
                blocked.resources.lock().expect("no panic while it is held").remove(resource);
            }
            !jobs.is_empty()
        });
        oldest.note(waiting.values().flatten());
        let mut tries = JoinSet::new();
        let permits = Arc::new(Semaphore::new(MAX_CONCURRENT));
        for (resource, jobs) in mem::take(&mut waiting) {
            let (group_commit, permits) = (group_commit.clone(), permits.clone());
            tries.spawn(async move {
                let _permit = permits.acquire().await.expect("it is never closed");
                let undecided = group_commit.commit_alone(resource.clone(), jobs).await;
                (resource, undecided)
            });
        }

        // 4. Return decided resources to the batch lane, and keep the others here.
        for (resource, undecided) in tries.join_all().await {
            let jobs: Vec<_> = undecided.contended.into_iter().chain(undecided.blocked).collect();
            if jobs.is_empty() {
                blocked.resources.lock().expect("no panic while it is held").remove(&resource);
            } else {
                waiting.insert(resource, jobs);
            }
        }

        oldest.note(waiting.values().flatten());

        // 5. Give the holders of the locks time. Without a pause, this loop would be a busy one.
        if !waiting.is_empty() {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

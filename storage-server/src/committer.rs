//! Group commit: many operations, one durable transaction.
//!
//! Handlers [queue](Queue::submit) an operation and await its decision. The committer takes what is
//! queued as one batch, loads the rows it is about, applies the operations to them in the order of
//! their arrival, has the store make the changed rows durable, and only then answers. Several
//! operations on one resource so become one change of its row: a hot resource doesn't cost a commit
//! per write.
//!
//! What a rival changed meanwhile is loaded again and decided again. A resource that somebody else's
//! lock keeps from being changed, or on which rivals are always faster, moves to a lane of its own,
//! where it holds up nobody and is decided under its lock.

mod group_commit;
mod guesses;

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    mem,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use fence::ResourceName;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

use self::group_commit::GroupCommit;
use crate::{
    config::Enforcement,
    operation::{Action, Decided, Operation},
    store::Store,
};

/// How many operations may be on their way at once; beyond it, they are refused as unavailable.
const MAX_QUEUED: usize = 4096;
const MAX_BATCH_OPERATIONS: usize = 256;
const MAX_BATCH_BYTES: usize = 16 << 20;
/// What a value that is to be read counts as, before its size is known.
const ASSUMED_VALUE_BYTES: usize = 256 << 10;
/// How many blocked resources are tried at once: some connections are left for others.
const MAX_ABREAST: usize = 4;
/// How many operations may wait for one blocked resource.
const MAX_BLOCKED: usize = 256;
/// How long to leave a blocked resource alone before the next try.
const BLOCKED_PAUSE: Duration = Duration::from_millis(20);

/// Where handlers queue operations.
#[derive(Clone, Debug)]
pub struct Queue {
    jobs: mpsc::UnboundedSender<Job>,
    places: Arc<Semaphore>,
}

/// No decision can be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// What may have happened all the same.
    pub outcome: UnavailableOutcome,
    /// Why there is no decision.
    pub reason: String,
}

/// What may have become of an operation whose decision can't be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnavailableOutcome {
    /// It has not happened, and won't.
    None,
    /// It may have happened.
    Unknown,
}

impl Queue {
    /// Queues an operation and waits for its decision, which is durable once it is told.
    ///
    /// # Errors
    /// [`Unavailable`] if the database can't be reached, or too much is queued.
    ///
    /// # Cancellation safety
    /// The operation may happen even if this future is dropped.
    pub async fn submit(&self, operation: Operation) -> Result<Decided, Unavailable> {
        let none = |reason: &str| Unavailable {
            outcome: UnavailableOutcome::None,
            reason: reason.to_owned(),
        };
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return Err(none("too many operations are queued"));
        };
        let (answer, decision) = oneshot::channel();
        let job = Job { operation, answer, queued: Instant::now(), _place: place };
        self.jobs.send(job).map_err(|_| none("the server is shutting down"))?;
        decision.await.unwrap_or_else(|_| {
            let reason = "the committer has stopped".to_owned();
            Err(Unavailable { outcome: UnavailableOutcome::Unknown, reason })
        })
    }
}

/// An operation on its way, and who waits for its decision.
#[derive(Debug)]
struct Job {
    operation: Operation,
    answer: oneshot::Sender<Result<Decided, Unavailable>>,
    queued: Instant,
    _place: OwnedSemaphorePermit,
}

impl Job {
    fn tell(self, decision: Result<Decided, Unavailable>) {
        // Nobody listens any more if the client went away.
        let _ = self.answer.send(decision);
    }

    fn reads(&self) -> bool {
        matches!(self.operation.action, Action::Read)
    }

    fn bytes(&self) -> usize {
        match &self.operation.action {
            Action::Write { content, .. } => content.bytes.len(),
            Action::Read => ASSUMED_VALUE_BYTES,
            Action::Claim | Action::Delete { .. } => 0,
        }
    }
}

/// The running committer.
#[derive(Debug)]
pub struct Committer {
    close: CancellationToken,
    lanes: JoinSet<()>,
}

impl Committer {
    /// Starts a committer.
    pub fn start(store: Arc<dyn Store>, enforcement: Enforcement) -> (Queue, Self) {
        let group_commit = Arc::new(GroupCommit::new(store, enforcement));
        let blocked_resources = Arc::new(BlockedResources::default());
        let (blocked_lane, from_batches) = mpsc::unbounded_channel();
        let close = CancellationToken::new();
        let (jobs, queued) = mpsc::unbounded_channel();
        let mut lanes = JoinSet::new();
        lanes.spawn(commit_batches(
            group_commit.clone(),
            queued,
            close.clone(),
            blocked_lane,
            blocked_resources.clone(),
        ));
        lanes.spawn(commit_blocked(group_commit, from_batches, blocked_resources));
        let queue = Queue { jobs, places: Arc::new(Semaphore::new(MAX_QUEUED)) };
        (queue, Self { close, lanes })
    }

    /// Takes no more operations, and waits until those already queued are answered.
    ///
    /// # Errors
    /// If the committer panicked.
    pub async fn drain(mut self) -> Result<(), JoinError> {
        self.close.cancel();
        while let Some(stopped) = self.lanes.join_next().await {
            stopped?;
        }
        Ok(())
    }

    /// Waits for a committer that stops without being asked to, which it does only by a panic.
    pub async fn failed(&mut self) -> JoinError {
        let stopped = self.lanes.join_next().await.expect("there are lanes");
        stopped.expect_err("a lane runs until it is drained")
    }
}

/// The resources whose operations go to the lane of the blocked.
type BlockedResources = Mutex<HashSet<ResourceName>>;

/// Commits what is queued, batch after batch.
async fn commit_batches(
    group_commit: Arc<GroupCommit>,
    mut queued: mpsc::UnboundedReceiver<Job>,
    close: CancellationToken,
    blocked_lane: mpsc::UnboundedSender<Job>,
    blocked_resources: Arc<BlockedResources>,
) {
    let mut waiting = VecDeque::new();
    let mut arrived = Vec::new();
    loop {
        if waiting.is_empty() {
            tokio::select! {
                received = queued.recv_many(&mut arrived, MAX_BATCH_OPERATIONS) => {
                    if received == 0 {
                        return;
                    }
                }
                () = close.cancelled(), if !queued.is_closed() => queued.close(),
            }
        }
        while arrived.len() < MAX_BATCH_OPERATIONS
            && let Ok(job) = queued.try_recv()
        {
            arrived.push(job);
        }
        waiting.extend(arrived.drain(..));

        let (blocked, batch) = {
            let blocked_resources = blocked_resources.lock().expect("no panic while it is held");
            take_batch(&mut waiting)
                .into_iter()
                .partition(|job: &Job| blocked_resources.contains(&job.operation.resource))
        };
        let left = group_commit.commit(batch).await;
        for job in blocked.into_iter().chain(left.blocked) {
            let mut blocked_resources =
                blocked_resources.lock().expect("no panic while it is held");
            blocked_resources.insert(job.operation.resource.clone());
            blocked_lane.send(job).expect("the lane runs as long as this sender lives");
        }
        // What came first is tried first. It is tried at once: a rival's clients need a moment for
        // their next writes, and who waited longer would always come too late.
        for job in left.contended.into_iter().rev() {
            waiting.push_front(job);
        }
    }
}

/// Takes the jobs that came first, as many as one batch may hold.
fn take_batch(waiting: &mut VecDeque<Job>) -> Vec<Job> {
    let mut bytes = 0;
    let fitting = waiting.iter().take(MAX_BATCH_OPERATIONS).take_while(|job| {
        let first = bytes == 0;
        bytes += job.bytes();
        first || bytes <= MAX_BATCH_BYTES
    });
    let fitting = fitting.count();
    waiting.drain(..fitting).collect()
}

/// Commits the operations on blocked resources, each resource in a transaction of its own.
async fn commit_blocked(
    group_commit: Arc<GroupCommit>,
    mut from_batches: mpsc::UnboundedReceiver<Job>,
    blocked_resources: Arc<BlockedResources>,
) {
    let mut waiting: BTreeMap<ResourceName, Vec<Job>> = BTreeMap::new();
    loop {
        if waiting.is_empty() {
            match from_batches.recv().await {
                Some(job) => group(&mut waiting, job),
                None => return,
            }
        }
        while let Ok(job) = from_batches.try_recv() {
            match waiting.get(&job.operation.resource) {
                Some(jobs) if jobs.len() >= MAX_BLOCKED => job.tell(Err(Unavailable {
                    outcome: UnavailableOutcome::None,
                    reason: "others keep the resource locked".to_owned(),
                })),
                _ => group(&mut waiting, job),
            }
        }
        let mut tries = JoinSet::new();
        let abreast = Arc::new(Semaphore::new(MAX_ABREAST));
        for (resource, jobs) in mem::take(&mut waiting) {
            let (group_commit, abreast) = (group_commit.clone(), abreast.clone());
            tries.spawn(async move {
                let _turn = abreast.acquire().await.expect("it is never closed");
                let left = group_commit.commit_alone(resource.clone(), jobs).await;
                (resource, left)
            });
        }
        for (resource, left) in tries.join_all().await {
            let left: Vec<_> = left.contended.into_iter().chain(left.blocked).collect();
            if left.is_empty() {
                blocked_resources.lock().expect("no panic while it is held").remove(&resource);
            } else {
                waiting.insert(resource, left);
            }
        }
        if !waiting.is_empty() {
            tokio::time::sleep(BLOCKED_PAUSE).await;
        }
    }
}

fn group(groups: &mut BTreeMap<ResourceName, Vec<Job>>, job: Job) {
    groups.entry(job.operation.resource.clone()).or_default().push(job);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn full_queue_is_unavailable_and_nothing_has_happened() {
        let (jobs, _queued) = mpsc::unbounded_channel();
        let queue = Queue { jobs, places: Arc::new(Semaphore::new(0)) };
        let resource = "r".parse().unwrap();
        let operation = Operation { resource, offered: None, action: Action::Claim };
        let unavailable = queue.submit(operation).await.unwrap_err();
        assert_eq!(unavailable.outcome, UnavailableOutcome::None);
        assert_eq!(unavailable.reason, "too many operations are queued");
    }
}

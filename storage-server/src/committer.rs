//! Group commit: many operations, one durable transaction.
//!
//! Handlers [queue](Queue::submit) an operation and await its decision. The committer takes what is
//! queued as one batch, loads the rows it is about, applies the operations to them in the order of
//! their arrival, has the store make the changed rows durable, and only then answers. Several
//! operations on one resource so become one change of its row: a hot resource doesn't cost a commit
//! per write.
//!
//! What a rival changed meanwhile is loaded again and decided again. A resource that somebody else's
//! lock keeps from being changed moves to a lane of its own, where it holds up nobody.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    mem,
    ops::Range,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use fence::ResourceName;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::{JoinError, JoinHandle},
};

use crate::{
    config::Enforcement,
    operation::{Action, Decided, Operation, Outcome},
    row::Row,
    store::{ApplyError, Change, Store, Wanted, WantedValue},
};

/// How many operations may be on their way at once; beyond it, they are refused as unavailable.
const MAX_QUEUED: usize = 4096;
const MAX_BATCH_OPERATIONS: usize = 256;
const MAX_BATCH_BYTES: usize = 16 << 20;
/// How long an operation may wait for rivals and for other people's locks.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to leave a contended resource alone before the next try, when nothing else is to do.
const CONTENDED_PAUSE: Duration = Duration::from_millis(2);
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
        let job = Job {
            operation,
            answer,
            queued: Instant::now(),
            _place: place,
        };
        self.jobs
            .send(job)
            .map_err(|_| none("the server is shutting down"))?;
        decision.await.unwrap_or_else(|_| {
            let reason = "the committer has stopped".to_owned();
            Err(Unavailable {
                outcome: UnavailableOutcome::Unknown,
                reason,
            })
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

    fn bytes(&self) -> usize {
        match &self.operation.action {
            Action::Write { content, .. } => content.bytes.len(),
            Action::Claim | Action::Read | Action::Delete { .. } => 0,
        }
    }
}

/// The running committer.
#[derive(Debug)]
pub struct Committer {
    close: Arc<Notify>,
    batches: JoinHandle<()>,
    blocked: JoinHandle<()>,
}

impl Committer {
    /// Starts a committer.
    pub fn start(store: Arc<dyn Store>, enforcement: Enforcement) -> (Queue, Self) {
        let (jobs, queued) = mpsc::unbounded_channel();
        let (to_blocked_lane, from_batches) = mpsc::unbounded_channel();
        let group_commit = Arc::new(GroupCommit { store, enforcement });
        let blocked_resources = Arc::new(BlockedResources::default());
        let close = Arc::new(Notify::new());
        let committer = Self {
            close: close.clone(),
            batches: tokio::spawn(commit_batches(
                group_commit.clone(),
                queued,
                close,
                to_blocked_lane,
                blocked_resources.clone(),
            )),
            blocked: tokio::spawn(commit_blocked(
                group_commit,
                from_batches,
                blocked_resources,
            )),
        };
        (
            Queue {
                jobs,
                places: Arc::new(Semaphore::new(MAX_QUEUED)),
            },
            committer,
        )
    }

    /// Takes no more operations, and waits until those already queued are answered.
    ///
    /// # Errors
    /// If the committer panicked.
    pub async fn drain(self) -> Result<(), JoinError> {
        self.close.notify_one();
        self.batches.await?;
        self.blocked.await
    }

    /// Waits for a committer that stops without being asked to, which it does only by a panic.
    pub async fn failed(&mut self) -> JoinError {
        let stopped = tokio::select! {
            stopped = &mut self.batches => stopped,
            stopped = &mut self.blocked => stopped,
        };
        stopped.expect_err("the committer runs until it is drained")
    }
}

/// The resources whose operations go to the lane of the blocked.
type BlockedResources = Mutex<HashSet<ResourceName>>;

/// Commits what is queued, batch after batch.
async fn commit_batches(
    group_commit: Arc<GroupCommit>,
    mut queued: mpsc::UnboundedReceiver<Job>,
    close: Arc<Notify>,
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
                () = close.notified() => queued.close(),
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
            blocked_lane
                .send(job)
                .expect("the lane runs as long as this sender lives");
        }
        if waiting.is_empty() && queued.is_empty() && !left.contended.is_empty() {
            tokio::time::sleep(CONTENDED_PAUSE).await;
        }
        // What came first is tried first.
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

/// Commits the operations on blocked resources, one resource after the other.
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
            group(&mut waiting, job);
        }
        for (resource, jobs) in mem::take(&mut waiting) {
            let left = group_commit.commit(jobs).await;
            let left: Vec<_> = left.contended.into_iter().chain(left.blocked).collect();
            if left.is_empty() {
                blocked_resources
                    .lock()
                    .expect("no panic while it is held")
                    .remove(&resource);
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
    groups
        .entry(job.operation.resource.clone())
        .or_default()
        .push(job);
}

/// What a batch needs to be committed.
struct GroupCommit {
    store: Arc<dyn Store>,
    enforcement: Enforcement,
}

/// The jobs of a batch that could not be decided yet.
#[derive(Default)]
struct Left {
    /// A rival changed the resource, or is changing it.
    contended: Vec<Job>,
    /// Somebody else's lock was in the way for as long as a statement waits.
    blocked: Vec<Job>,
}

/// The operations on one resource, and what they make of its row.
struct Folded {
    resource: ResourceName,
    decided: Vec<(Job, Decided)>,
    before: Row,
    after: Row,
}

/// What became of a change.
#[derive(Clone)]
enum Fate {
    Applied,
    Contended,
    Blocked,
    Unavailable(Unavailable),
}

impl GroupCommit {
    /// Decides the batch and answers all of it that can be answered.
    async fn commit(&self, batch: Vec<Job>) -> Left {
        let mut groups = BTreeMap::new();
        for job in batch {
            group(&mut groups, job);
        }
        let rows = match self.load(&groups).await {
            Ok(rows) => rows,
            Err(unavailable) => {
                for job in groups.into_values().flatten() {
                    job.tell(Err(unavailable.clone()));
                }
                return Left::default();
            }
        };
        let folded: Vec<_> = groups
            .into_iter()
            .zip(rows)
            .map(|((resource, jobs), row)| self.fold(resource, jobs, row))
            .collect();
        let (changed, unchanged): (Vec<_>, Vec<_>) = folded
            .into_iter()
            .partition(|folded| folded.before != folded.after);
        // What changes nothing was decided by rows that are durable already.
        for folded in unchanged {
            folded.settle(Fate::Applied, &mut Left::default());
        }
        let changes: Vec<_> = changed.iter().map(Folded::change).collect();
        let fates = self.apply(&changes).await;
        let mut left = Left::default();
        for (folded, fate) in changed.into_iter().zip(fates) {
            folded.settle(fate, &mut left);
        }
        left
    }

    async fn load(
        &self,
        groups: &BTreeMap<ResourceName, Vec<Job>>,
    ) -> Result<Vec<Row>, Unavailable> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let reads = |job: &Job| matches!(job.operation.action, Action::Read);
        let wanted: Vec<_> = groups
            .iter()
            .map(|(resource, jobs)| Wanted {
                resource,
                value: if jobs.iter().any(reads) {
                    WantedValue::Whole
                } else {
                    WantedValue::Presence
                },
            })
            .collect();
        self.store.load(&wanted).await.map_err(|error| {
            tracing::error!(resources = wanted.len(), "a batch was not loaded: {error}");
            Unavailable {
                outcome: UnavailableOutcome::None,
                reason: error.to_string(),
            }
        })
    }

    fn fold(&self, resource: ResourceName, jobs: Vec<Job>, before: Row) -> Folded {
        let mut after = before.clone();
        let decided = jobs
            .into_iter()
            .map(|job| {
                let decided = after.apply(&job.operation, self.enforcement);
                (job, decided)
            })
            .collect();
        Folded {
            resource,
            decided,
            before,
            after,
        }
    }

    /// Applies the changes. Where somebody else's lock is in the way of a part, that part is found by
    /// halving, and the rest goes on.
    async fn apply(&self, changes: &[Change<'_>]) -> Vec<Fate> {
        let mut fates = vec![Fate::Contended; changes.len()];
        let mut parts: Vec<Range<usize>> = vec![0..changes.len()];
        while let Some(part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let fate = match self.store.apply(&changes[part.clone()]).await {
                Ok(applied) => {
                    for (fate, applied) in fates[part].iter_mut().zip(applied) {
                        *fate = if applied {
                            Fate::Applied
                        } else {
                            Fate::Contended
                        };
                    }
                    continue;
                }
                Err(ApplyError::Blocked) if part.len() > 1 => {
                    let middle = part.start + part.len() / 2;
                    parts.extend([part.start..middle, middle..part.end]);
                    continue;
                }
                Err(ApplyError::Blocked) => Fate::Blocked,
                Err(error) => {
                    tracing::error!(resources = part.len(), "a batch was not committed: {error}");
                    let outcome = match error {
                        ApplyError::Unknown(_) => UnavailableOutcome::Unknown,
                        ApplyError::Unchanged(_) | ApplyError::Blocked => UnavailableOutcome::None,
                    };
                    Fate::Unavailable(Unavailable {
                        outcome,
                        reason: error.to_string(),
                    })
                }
            };
            fates[part].fill(fate);
        }
        fates
    }
}

impl Folded {
    fn change(&self) -> Change<'_> {
        Change {
            resource: &self.resource,
            before: &self.before,
            after: &self.after,
        }
    }

    /// Tells the decisions, which are durable if the change was applied; leaves the jobs whose turn
    /// is yet to come, unless they have waited for too long.
    fn settle(self, fate: Fate, left: &mut Left) {
        for (job, decided) in self.decided {
            let decision = match &fate {
                Fate::Applied => Ok(decided),
                Fate::Contended if job.queued.elapsed() < PATIENCE => {
                    left.contended.push(job);
                    continue;
                }
                Fate::Blocked if job.queued.elapsed() < PATIENCE => {
                    left.blocked.push(job);
                    continue;
                }
                Fate::Contended | Fate::Blocked => Err(Unavailable {
                    outcome: UnavailableOutcome::None,
                    reason: "others kept the resource locked for too long".to_owned(),
                }),
                // What the rule refused would not have happened in any case.
                Fate::Unavailable(unavailable) => Err(Unavailable {
                    outcome: match decided.outcome {
                        Outcome::Refused(_) => UnavailableOutcome::None,
                        _ => unavailable.outcome,
                    },
                    ..unavailable.clone()
                }),
            };
            job.tell(decision);
        }
    }
}

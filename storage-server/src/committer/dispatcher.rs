//! The dispatcher, which decides what jobs are tried together, and when.
//!
//! 1. All jobs come to the batches. One batch is tried at a time, and the next one has all that came meanwhile.
//! 2. A job with no obstacle returns to the batches, and so does one that lost to a rival, for 50 ms.
//! 3. If its row is locked, or rivals are always faster, the row is blocked: it has a lane. All jobs that name
//!    the row wait in this lane, and nobody else does. So they are one group, and within the limits of a batch.
//! 4. A look every 20 ms shows which of the blocked rows are free. Their lanes are tried under the locks of their
//!    jobs' rows, a few at once. So a row that was locked for a moment does not wait behind others that stay locked.
//! 5. A row that other servers pass to each other is never free. So a lane whose row is locked is tried too, but
//!    only now and then: a try that waits for a lock keeps the other rows of its jobs locked.
//! 6. After a try that was not in vain, the lane is gone, and its jobs come back to the batches. So a busy row
//!    does not stay blocked.
//! 7. Late jobs are answered before each try, after it, and at each look.
//!
//! A store without transactions has no batches: each resource has a lane while it has jobs. After a try that was
//! in vain, the lane pauses until the next look.

mod lane;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    panic,
    sync::Arc,
    time::Duration,
};

use fence::ResourceName;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use self::lane::Lane;
use super::{
    group_commit::GroupCommit,
    job::{Job, still_wanted},
    queue::Oldest,
};

/// How many blocked lanes are tried at once. The other connections are left to other work.
const MAX_BLOCKED: usize = 4;
/// How many resources are changed at once in a store that changes each by itself.
const MAX_BY_THEMSELVES: usize = 256;
/// How often to look at the lanes. Without a pause, their tries would be a busy loop.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// How long a lane whose row stays locked is not tried after a try that was in vain.
const BETWEEN_WAITS: Duration = Duration::from_millis(300);

/// Tries batches and lanes.
pub(super) struct Dispatcher {
    group_commit: Arc<GroupCommit>,
    /// See [`Store::has_transactions`](crate::store::Store::has_transactions).
    has_transactions: bool,
    batches: Lane,
    /// The lanes of blocked resources. Each one is ready, is tried, or pauses.
    blocked: HashMap<ResourceName, Lane>,
    /// The resources whose lanes are tried next.
    ready: VecDeque<ResourceName>,
    /// How many more lanes may be tried at once.
    places: usize,
    is_looking: bool,
    tries: JoinSet<Ended>,
    /// When the oldest job of a lane was queued, by the last look.
    oldest_blocked: Option<Instant>,
    oldest: Oldest,
}

/// What has ended, with the undecided jobs of a try.
enum Ended {
    Batch(Vec<Job>),
    Lane(ResourceName, Vec<Job>),
    /// Of all of these rows, some are locked.
    Look {
        all: Vec<ResourceName>,
        locked: HashSet<ResourceName>,
    },
}

impl Dispatcher {
    pub(super) fn new(
        group_commit: Arc<GroupCommit>,
        has_transactions: bool,
        oldest: Oldest,
    ) -> Self {
        Self {
            group_commit,
            has_transactions,
            batches: Lane::default(),
            blocked: HashMap::new(),
            ready: VecDeque::new(),
            places: if has_transactions { MAX_BLOCKED } else { MAX_BY_THEMSELVES },
            is_looking: false,
            tries: JoinSet::new(),
            oldest_blocked: None,
            oldest,
        }
    }

    /// Has the queued jobs committed, until `close` is cancelled and all are answered.
    pub(super) async fn run(
        mut self,
        mut queued: mpsc::UnboundedReceiver<Job>,
        close: CancellationToken,
    ) {
        let mut may_receive = true;
        let mut clock = interval(BETWEEN_LOOKS);
        // It stands still while there is no lane, and would make up for that.
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // 1. Wait for a job, or for the end of a try. While a batch is being committed, new jobs stay in
            //    the queue, and all of them share the next one: the slower the database, the larger the batch.
            //    A closed queue hands out its last jobs, and then nothing.
            tokio::select! {
                job = queued.recv(), if may_receive && !self.batches.is_tried() => match job {
                    Some(job) => self.batches.push_back(job),
                    None => may_receive = false,
                },
                () = close.cancelled(), if !queued.is_closed() => queued.close(),
                Some(ended) = self.tries.join_next() => {
                    self.end(ended.unwrap_or_else(|error| panic::resume_unwind(error.into_panic())));
                }
                _ = clock.tick(), if !self.blocked.is_empty() => self.look_at_lanes(),
                else => return,
            }

            // 2. Take all other jobs that have arrived.
            while !self.batches.is_tried()
                && let Ok(job) = queued.try_recv()
            {
                self.batches.push_back(job);
            }

            // 3. Try the next jobs. Those that lost to a rival are in front, and tried at once: the rival's
            //    clients need a moment to send their next writes. After a pause, this server would lose to
            //    those, again and again.
            self.begin_batch();
            self.begin_lanes();
            if self.blocked.is_empty() {
                self.oldest_blocked = None;
            }
            self.oldest.note(self.batches.oldest().into_iter().chain(self.oldest_blocked).min());
        }
    }

    fn end(&mut self, ended: Ended) {
        match ended {
            Ended::Batch(undecided) => {
                self.batches.end();
                self.put_back(undecided);
            }
            Ended::Lane(resource, undecided) => {
                self.places += 1;
                let lane = self.blocked.get_mut(&resource).expect("it is tried");
                if undecided.iter().any(|job| job.blocked_by() == Some(&resource)) {
                    lane.end_in_vain();
                } else {
                    let waiting = self.blocked.remove(&resource).expect("it is tried").into_jobs();
                    waiting.into_iter().rev().for_each(|job| self.batches.push_front(job));
                }
                self.put_back(undecided);
            }
            Ended::Look { all, locked } => self.end_look(all, &locked),
        }
    }

    /// Puts the undecided jobs of a try in front, in order of arrival.
    fn put_back(&mut self, undecided: Vec<Job>) {
        let mut undecided = still_wanted(undecided);
        undecided.sort_by_key(Job::queued);
        for job in undecided.into_iter().rev() {
            match job.blocked_by().cloned() {
                Some(resource) => {
                    self.blocked.entry(resource).or_insert_with(Lane::paused).push_front(job);
                }
                None => self.batches.push_front(job),
            }
        }
    }

    /// Begins a batch, unless one is under way. Jobs on a blocked resource are left out: a locked row would
    /// hold up the whole statement, and so every other job of the batch. They don't overtake those in its lane.
    fn begin_batch(&mut self) {
        while !self.batches.is_tried() && !self.batches.is_empty() {
            let mut batch = Vec::new();
            for job in self.batches.take() {
                let is_blocked = |resource: &&ResourceName| {
                    !self.has_transactions || self.blocked.contains_key(*resource)
                };
                let blocked_by = job.transaction.resources().find(is_blocked).cloned();
                match blocked_by {
                    Some(resource) => {
                        let lane = self.blocked.entry(resource.clone()).or_insert_with_key(|new| {
                            self.ready.push_back(new.clone());
                            Lane::default()
                        });
                        lane.push_behind(resource, job);
                    }
                    None => batch.push(job),
                }
            }
            if !batch.is_empty() {
                self.batches.begin(&batch);
                let group_commit = self.group_commit.clone();
                self.tries.spawn(async move { Ended::Batch(group_commit.commit(batch).await) });
            }
        }
    }

    /// Begins the tries of lanes that are ready, as long as there are places.
    fn begin_lanes(&mut self) {
        while self.places > 0
            && let Some(resource) = self.ready.pop_front()
        {
            let lane = self.blocked.get_mut(&resource).expect("it is ready");
            let jobs = lane.take();
            if jobs.is_empty() {
                self.blocked.remove(&resource);
                continue;
            }
            lane.begin(&jobs);
            self.places -= 1;
            let (group_commit, has_transactions) =
                (self.group_commit.clone(), self.has_transactions);
            self.tries.spawn(async move {
                let undecided = match has_transactions {
                    true => group_commit.commit_under_locks(&resource, jobs).await,
                    false => group_commit.commit(jobs).await,
                };
                Ended::Lane(resource, undecided)
            });
        }
    }

    /// Answers late jobs in lanes, and begins a look at the rows of those that pause.
    fn look_at_lanes(&mut self) {
        self.blocked.values_mut().for_each(Lane::answer_late);
        self.blocked.retain(|_, lane| !lane.is_paused || !lane.is_empty());
        self.oldest_blocked = self.blocked.values().filter_map(Lane::oldest).min();
        let paused = self.blocked.iter().filter(|(_, lane)| lane.is_paused);
        let all: Vec<_> = paused.map(|(resource, _)| resource.clone()).collect();
        if !all.is_empty() && !self.is_looking {
            self.is_looking = true;
            let group_commit = self.group_commit.clone();
            self.tries.spawn(async move {
                let locked = group_commit.locked(&all).await.into_iter().collect();
                Ended::Look { all, locked }
            });
        }
    }

    /// Makes the lanes ready whose rows are free. Others wait for the locks of their rows, those first that were
    /// not tried for the longest time, and in all places but one, which is left to free rows.
    fn end_look(&mut self, mut all: Vec<ResourceName>, locked: &HashSet<ResourceName>) {
        self.is_looking = false;
        all.retain(|resource| self.blocked.get(resource).is_some_and(|lane| lane.is_paused));
        let (mut locked, free): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|resource| locked.contains(resource));
        locked.retain(|resource| {
            self.blocked[resource].failed.is_none_or(|at| at.elapsed() >= BETWEEN_WAITS)
        });
        locked.sort_by_key(|resource| self.blocked[resource].failed);
        let waiting = self.blocked.values().filter(|lane| lane.waits).count();
        locked.truncate((MAX_BLOCKED - 1).saturating_sub(waiting));
        let free = free.into_iter().map(|resource| (resource, false));
        for (resource, waits) in free.chain(locked.into_iter().map(|resource| (resource, true))) {
            let lane = self.blocked.get_mut(&resource).expect("it pauses");
            (lane.is_paused, lane.waits) = (false, waits);
            self.ready.push_back(resource);
        }
    }
}

#[cfg(test)]
mod tests;

//! Jobs that wait to be tried together.

use std::{collections::VecDeque, mem};

use fence::ResourceName;
use tokio::time::Instant;

use crate::committer::job::{Job, Obstacle, still_wanted};

/// The most resources of a try, compared ones included: their rows are locked as well.
const MAX_RESOURCES: usize = 256;
const MAX_BYTES: usize = 16 << 20;
/// How many jobs may wait for one locked resource.
pub(super) const MAX_WAITING: usize = 256;

/// Jobs that wait, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Lane {
    waiting: VecDeque<Job>,
    /// When the oldest job was queued that is being tried.
    tried: Option<Instant>,
    /// Its row was locked when it was last tried. It stays so: the first try that finds the row free ends the lane.
    is_locked: bool,
    /// When its last try that was in vain ended, if there was one.
    pub(super) failed: Option<Instant>,
    /// It is not tried before its row was looked at.
    pub(super) is_paused: bool,
    /// It is tried although its row was locked.
    pub(super) waits: bool,
}

impl Lane {
    pub(super) fn paused() -> Self {
        Self { is_paused: true, ..Self::default() }
    }

    pub(super) fn push_back(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    pub(super) fn push_front(&mut self, job: Job) {
        self.is_locked |= matches!(job.obstacle, Some(Obstacle::Lock(_)));
        self.waiting.push_front(job);
    }

    /// Lets a job wait behind the others in the lane of a resource. While its row is locked, the lock is in the
    /// job's way as in theirs, and they may not fill the whole queue.
    pub(super) fn push_behind(&mut self, resource: ResourceName, mut job: Job) {
        if self.is_locked {
            if self.waiting.len() >= MAX_WAITING {
                return job.give_up("the resource is locked, and too many operations wait for it");
            }
            job.note_obstacle(Some(Obstacle::Lock(resource)));
        }
        self.waiting.push_back(job);
    }

    /// Whether no job waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a try is under way.
    pub(super) fn is_tried(&self) -> bool {
        self.tried.is_some()
    }

    /// When the oldest job was queued.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.waiting.front().map(Job::queued).into_iter().chain(self.tried).min()
    }

    /// Takes the oldest jobs, as many as fit in one try. A single one always fits.
    pub(super) fn take(&mut self) -> Vec<Job> {
        let (mut resources, mut bytes) = (0, 0);
        let fitting = self.waiting.iter().take_while(|job| {
            let is_first = resources == 0;
            resources += job.transaction.resources().count();
            bytes += job.value_bytes();
            is_first || (resources <= MAX_RESOURCES && bytes <= MAX_BYTES)
        });
        let fitting = fitting.count();
        self.waiting.drain(..fitting).collect()
    }

    /// All jobs that wait.
    pub(super) fn into_jobs(self) -> VecDeque<Job> {
        self.waiting
    }

    /// Answers the jobs that have waited for too long, and drops those for which nobody waits.
    pub(super) fn answer_late(&mut self) {
        self.waiting = still_wanted(mem::take(&mut self.waiting).into()).into();
    }

    /// Notes that these jobs are being tried.
    pub(super) fn begin(&mut self, jobs: &[Job]) {
        self.tried = jobs.iter().map(Job::queued).min();
    }

    /// Ends the try.
    pub(super) fn end(&mut self) {
        self.tried = None;
    }

    /// Ends a try that was in vain.
    pub(super) fn end_in_vain(&mut self) {
        self.end();
        self.failed = Some(Instant::now());
        (self.is_paused, self.waits) = (true, false);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fence::Token;
    use tokio::sync::{Semaphore, oneshot};

    use super::*;
    use crate::{
        operation::{Action, Condition, Content, Operation},
        transaction::{ResourceCondition, Transaction},
    };

    /// A job that compares some resources and acts on one.
    fn job(compared: usize, action: Action) -> Job {
        let conditions = (0..compared).map(|number| ResourceCondition {
            resource: format!("compared/{number}").parse().unwrap(),
            condition: Condition::default(),
        });
        let (resource, ceiling) = ("r".parse().unwrap(), Token::MAX);
        let operation = Operation { resource, offered: None, ceiling, numbered: None, action };
        let conditions = conditions.collect();
        let transaction = Transaction { conditions, ..Transaction::single(operation) };
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Job::new(Arc::new(transaction), oneshot::channel().0, place)
    }

    /// Compared rows are locked as well, and large values take memory.
    #[test]
    fn rows_and_bytes_of_a_try_are_few() {
        let write = |bytes: usize| Action::Write {
            content: Content { content_type: String::new(), bytes: vec![0; bytes].into() },
            condition: Condition::default(),
        };
        for (compared, action, expected) in [
            (0, Action::Claim, MAX_RESOURCES),
            (0, Action::Read, MAX_RESOURCES),
            (0, write(MAX_BYTES / MAX_RESOURCES), MAX_RESOURCES),
            (0, write(MAX_BYTES / 16), 16),
            (0, write(MAX_BYTES + 1), 1),
            (1, Action::Claim, 128),
            (63, Action::Claim, 4),
            (300, Action::Claim, 1),
        ] {
            let waiting = (0..1000).map(|_| job(compared, action.clone())).collect();
            let mut lane = Lane { waiting, ..Lane::default() };
            assert_eq!(lane.take().len(), expected, "{compared}, {}", action.name());
            assert_eq!(lane.waiting.len(), 1000 - expected);
        }
    }
}

//! The batch lane, through which all operations go, except those on blocked resources.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    blocked_lane::BlockedLane,
    group_commit::GroupCommit,
    job::{Job, Unavailable, UnavailableOutcome},
    oldest::Oldest,
};

pub(super) const MAX_BATCH_OPERATIONS: usize = 256;
pub(super) const MAX_BATCH_BYTES: usize = 16 << 20;
/// A value that will be read is assumed to have this part of the largest size. A batch loads at most this
/// many times its own bytes of values, or one value.
pub(super) const ASSUMED_PART: usize = 4;
/// How long a job may wait before it is in a batch.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// Commits the queued jobs, batch after batch, until `close` is cancelled and the queue is empty.
pub(super) async fn commit_batches(
    group_commit: Arc<GroupCommit>,
    mut queued: mpsc::UnboundedReceiver<Job>,
    close: CancellationToken,
    blocked_lane: BlockedLane,
    oldest: Oldest,
    max_value_bytes: usize,
) {
    let mut waiting = VecDeque::new();
    let mut arrived = Vec::new();
    loop {
        // 1. Wait until jobs are queued, and take all of them, unless some wait for another try.
        //    Many jobs queue during one commit, and all of them share the next one: the slower the
        //    database, the larger the batch. A closed queue hands out its last jobs, and then 0. By
        //    then, every job is answered or in the blocked lane, which ends after this function.
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

        // 2. If step 1 was skipped, take the new jobs too. Otherwise jobs that wait for another try
        //    would hold up all others until they are decided.
        while arrived.len() < MAX_BATCH_OPERATIONS
            && let Ok(job) = queued.try_recv()
        {
            arrived.push(job);
        }
        // Nobody waits for a job whose client has disconnected. The client may have sent its
        // operation once more, under another token.
        waiting.extend(arrived.drain(..));
        waiting.retain(|job| !job.is_abandoned());
        // A database that answers slowly must not keep clients waiting for minutes.
        while let Some(job) = waiting.pop_front_if(|job| job.waited() > LONGEST_WAIT) {
            let reason = "the database has been too slow for too long".to_owned();
            job.answer(Err(Unavailable { outcome: UnavailableOutcome::None, reason }));
        }

        // 3. Leave jobs on blocked resources out of the batch. A locked row would hold up the whole
        //    statement, and so every other job of the batch.
        let (blocked, batch) = blocked_lane.split(take_batch(&mut waiting, max_value_bytes));

        // 4. Decide the batch, make it durable, and answer what can be answered.
        oldest.note(batch.iter().chain(&waiting));
        let undecided = group_commit.commit(batch).await;

        // 5. Hand over the jobs on blocked resources: those that step 3 left out, and those that
        //    the commit has found blocked.
        for job in blocked.into_iter().chain(undecided.blocked) {
            blocked_lane.push(job);
        }

        // 6. Put jobs that lost to a rival back in front, in order of arrival, and retry them at
        //    once. The rival's clients need a moment to send their next writes. After a pause, this
        //    server would lose to those, again and again.
        for job in undecided.contended.into_iter().rev() {
            waiting.push_front(job);
        }
        oldest.note(waiting.iter());
    }
}

/// Takes the oldest jobs, as many as fit in one batch. A single job always fits. A read whose value
/// might not fit stays back, and with it the later jobs on its resource. All others pass it.
fn take_batch(waiting: &mut VecDeque<Job>, max_value_bytes: usize) -> Vec<Job> {
    let assumed_value_bytes = max_value_bytes / ASSUMED_PART;
    let (mut batch, mut left) = (Vec::new(), VecDeque::new());
    let mut left_resources = HashSet::new();
    let (mut read_bytes, mut written_bytes) = (0, 0);
    while batch.len() < MAX_BATCH_OPERATIONS
        && let Some(job) = waiting.pop_front()
    {
        let (bytes, of_batch) = match job.is_read() {
            true => (assumed_value_bytes, &mut read_bytes),
            false => (job.operation.value_bytes(), &mut written_bytes),
        };
        let fits = *of_batch == 0 || *of_batch + bytes <= MAX_BATCH_BYTES;
        if fits && !left_resources.contains(&job.operation.resource) {
            *of_batch += bytes;
            batch.push(job);
        } else if job.is_read() || fits {
            left_resources.insert(job.operation.resource.clone());
            left.push_back(job);
        } else {
            waiting.push_front(job);
            break;
        }
    }
    left.append(waiting);
    *waiting = left;
    batch
}

#[cfg(test)]
mod tests {
    use fence::Token;
    use tokio::sync::{Semaphore, oneshot};

    use super::*;
    use crate::operation::{Action, Operation};

    fn job(resource: &str, action: Action) -> Job {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (resource, ceiling) = (resource.parse().unwrap(), Token::MAX);
        let operation = Operation { resource, offered: None, ceiling, numbered: None, action };
        Job::new(operation, oneshot::channel().0, place)
    }

    fn names(batch: &[Job]) -> Vec<&str> {
        batch.iter().map(|job| job.operation.resource.as_str()).collect()
    }

    #[test]
    fn values_that_a_batch_loads_are_few_if_they_may_be_large() {
        for (max_value_bytes, expected) in
            [(64 << 10, MAX_BATCH_OPERATIONS), (1 << 20, 64), (64 << 20, 1), (256 << 20, 1)]
        {
            let mut waiting: VecDeque<_> = (0..1000).map(|_| job("r", Action::Read)).collect();
            let batch = take_batch(&mut waiting, max_value_bytes);
            assert_eq!(batch.len(), expected, "{max_value_bytes}");
            assert_eq!(waiting.len(), 1000 - expected);
        }
    }

    /// Otherwise each read would hold up all jobs behind it for a batch.
    #[test]
    fn reads_that_may_be_large_leave_memory_to_others() {
        let jobs = ["r1", "r2", "w1", "r3", "w2"];
        let action = |name: &str| if name.starts_with('r') { Action::Read } else { Action::Claim };
        let mut waiting: VecDeque<_> = jobs.iter().map(|name| job(name, action(name))).collect();
        assert_eq!(names(&take_batch(&mut waiting, 64 << 20)), ["r1", "w1", "w2"]);
        assert_eq!(names(&take_batch(&mut waiting, 64 << 20)), ["r2"]);
        assert_eq!(names(&take_batch(&mut waiting, 64 << 20)), ["r3"]);
        assert!(waiting.is_empty());
    }

    /// A job that is left out holds up later ones on its resource, so that they stay in order.
    #[test]
    fn jobs_on_one_resource_stay_in_order() {
        let jobs = [("a", Action::Read), ("b", Action::Read), ("b", Action::Claim)];
        let mut waiting: VecDeque<_> = jobs.map(|(name, action)| job(name, action)).into();
        assert_eq!(names(&take_batch(&mut waiting, 64 << 20)), ["a"]);
        let batch = take_batch(&mut waiting, 64 << 20);
        assert!(batch[0].is_read() && !batch[1].is_read());
    }
}

//! The batch lane, through which all operations go, except those on blocked resources.

use std::{collections::VecDeque, sync::Arc, time::Duration};

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
/// How long a job may wait before it is in a batch.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// Commits the queued jobs, batch after batch, until `close` is cancelled and the queue is empty.
pub(super) async fn commit_batches(
    group_commit: Arc<GroupCommit>,
    mut queued: mpsc::UnboundedReceiver<Job>,
    close: CancellationToken,
    blocked_lane: BlockedLane,
    oldest: Oldest,
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
        let (blocked, batch) = blocked_lane.split(take_batch(&mut waiting));

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

/// Takes the oldest jobs, as many as fit in one batch. A single job always fits.
fn take_batch(waiting: &mut VecDeque<Job>) -> Vec<Job> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while batch.len() < MAX_BATCH_OPERATIONS
        && let Some(job) = waiting.front()
    {
        bytes += job.value_bytes();
        if bytes > MAX_BATCH_BYTES && !batch.is_empty() {
            break;
        }
        batch.extend(waiting.pop_front());
    }
    batch
}

#[cfg(test)]
mod tests {
    use fence::Token;
    use tokio::sync::{Semaphore, oneshot};

    use super::*;
    use crate::operation::{Action, Condition, Content, Operation};

    fn job(resource: &str, action: Action) -> Job {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (resource, ceiling) = (resource.parse().unwrap(), Token::MAX);
        let operation = Operation { resource, offered: None, ceiling, numbered: None, action };
        Job::new(operation, oneshot::channel().0, place)
    }

    #[test]
    fn values_of_a_batch_are_few_if_they_are_large() {
        let write = |bytes: usize| Action::Write {
            content: Content { content_type: String::new(), bytes: vec![0; bytes].into() },
            condition: Condition::default(),
        };
        for (action, expected) in [
            (Action::Claim, MAX_BATCH_OPERATIONS),
            (Action::Read, MAX_BATCH_OPERATIONS),
            (write(MAX_BATCH_BYTES / MAX_BATCH_OPERATIONS), MAX_BATCH_OPERATIONS),
            (write(MAX_BATCH_BYTES / 16), 16),
            (write(MAX_BATCH_BYTES + 1), 1),
        ] {
            let mut waiting: VecDeque<_> = (0..300).map(|_| job("r", action.clone())).collect();
            let batch = take_batch(&mut waiting);
            assert_eq!(batch.len(), expected, "{}", action.name());
            assert_eq!(waiting.len(), 300 - expected);
        }
    }
}

//! The transaction lane, through which the transactions on several resources go.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use fence::ResourceName;
use tokio::{sync::mpsc, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    batch_lane::{LONGEST_WAIT, MAX_BATCH_BYTES, MAX_BATCH_OPERATIONS},
    group_commit::GroupCommit,
    job::{TransactionJob, Unavailable, UnavailableOutcome},
    oldest::Oldest,
};

/// How long to wait before blocked transactions are tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Commits the queued transactions, batch after batch, until `close` is cancelled and all are
/// answered.
pub(super) async fn commit_transactions(
    group_commit: Arc<GroupCommit>,
    mut queued: mpsc::UnboundedReceiver<TransactionJob>,
    close: CancellationToken,
    oldest: Oldest,
) {
    let mut waiting = VecDeque::new();
    let mut blocked: Vec<TransactionJob> = Vec::new();
    let mut may_receive = true;
    loop {
        // 1. Wait for a transaction. If some are blocked, wait only for a moment: without a pause,
        //    this loop would be a busy one. A closed queue hands out its last jobs, and then nothing.
        if waiting.is_empty() {
            tokio::select! {
                job = queued.recv(), if may_receive => match job {
                    Some(job) => waiting.push_back(job),
                    None => may_receive = false,
                },
                () = close.cancelled(), if !queued.is_closed() => queued.close(),
                () = sleep(RETRY_PAUSE), if !blocked.is_empty() => {}
                else => return,
            }
        }

        // 2. Take all others that have arrived. Nobody waits for one whose client has disconnected.
        while let Ok(job) = queued.try_recv() {
            waiting.push_back(job);
        }
        waiting.retain(|job| !job.is_abandoned());
        blocked.retain(|job| !job.is_abandoned());
        while let Some(job) = waiting.pop_front_if(|job| job.waited() > LONGEST_WAIT) {
            let reason = "the database has been too slow for too long".to_owned();
            job.answer(Err(Unavailable { outcome: UnavailableOutcome::None, reason }));
        }
        oldest.note(waiting.iter().chain(&blocked));

        // 3. Commit a batch of those that share no resource with a blocked one. The others would
        //    wait for the same locks, and hold up the batch.
        let blocked_resources: HashSet<ResourceName> = resources_of(&blocked).cloned().collect();
        let (more_blocked, batch): (Vec<_>, Vec<_>) =
            take_batch(&mut waiting).into_iter().partition(|job| {
                job.operation.resources().any(|resource| blocked_resources.contains(resource))
            });
        let undecided = group_commit.commit_transactions(batch).await;

        // 4. Try the blocked ones again whose rows are free by now.
        blocked.extend(more_blocked);
        let mut retried = group_commit.retry_transactions(blocked).await;
        retried.extend(undecided);
        blocked = retried;
        oldest.note(waiting.iter().chain(&blocked));
    }
}

/// Takes the oldest transactions, as many as fit in one batch. A single one always fits. Resources that
/// are only compared count, too: their rows are locked as well.
fn take_batch(waiting: &mut VecDeque<TransactionJob>) -> Vec<TransactionJob> {
    let (mut resources, mut bytes) = (0, 0);
    let fitting = waiting.iter().take_while(|job| {
        let is_first = resources == 0;
        resources += job.operation.resources().count();
        bytes += job.operation.value_bytes();
        is_first || (resources <= MAX_BATCH_OPERATIONS && bytes <= MAX_BATCH_BYTES)
    });
    let fitting = fitting.count();
    waiting.drain(..fitting).collect()
}

fn resources_of(jobs: &[TransactionJob]) -> impl Iterator<Item = &ResourceName> {
    jobs.iter().flat_map(|job| job.operation.resources())
}

#[cfg(test)]
mod tests {
    use fence::Token;
    use tokio::sync::{Semaphore, oneshot};

    use super::*;
    use crate::{
        operation::{Action, Condition, Operation},
        transaction::{ResourceCondition, Transaction},
    };

    /// A transaction that compares some resources and writes one.
    fn job(compared: usize) -> TransactionJob {
        let conditions = (0..compared).map(|number| ResourceCondition {
            resource: format!("compared/{number}").parse().unwrap(),
            condition: Condition::default(),
        });
        let write = Operation {
            resource: "written".parse().unwrap(),
            offered: None,
            ceiling: Token::MAX,
            numbered: None,
            action: Action::Delete { condition: Condition::default() },
        };
        let (conditions, writes) = (conditions.collect(), vec![write]);
        let transaction = Transaction { conditions, writes, _memory: None };
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        TransactionJob::new(Arc::new(transaction), oneshot::channel().0, place)
    }

    #[test]
    fn rows_that_a_batch_locks_are_few() {
        for (compared, expected) in [(0, MAX_BATCH_OPERATIONS), (1, 128), (63, 4), (300, 1)] {
            let mut waiting: VecDeque<_> = (0..1000).map(|_| job(compared)).collect();
            assert_eq!(take_batch(&mut waiting).len(), expected, "{compared}");
            assert_eq!(waiting.len(), 1000 - expected);
        }
    }
}

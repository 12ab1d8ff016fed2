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
    loop {
        // 1. Wait for a transaction. If some are blocked, wait only for a moment: without a pause,
        //    this loop would be a busy one.
        if waiting.is_empty() {
            tokio::select! {
                job = queued.recv(), if !(queued.is_closed() && queued.is_empty()) => {
                    waiting.extend(job);
                }
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

/// Takes the oldest transactions, as many as fit in one batch. A single one always fits.
fn take_batch(waiting: &mut VecDeque<TransactionJob>) -> Vec<TransactionJob> {
    let (mut operations, mut bytes) = (0, 0);
    let fitting = waiting.iter().take_while(|job| {
        let is_first = operations == 0;
        operations += job.operation.writes.len();
        bytes += job.operation.value_bytes();
        is_first || (operations <= MAX_BATCH_OPERATIONS && bytes <= MAX_BATCH_BYTES)
    });
    let fitting = fitting.count();
    waiting.drain(..fitting).collect()
}

fn resources_of(jobs: &[TransactionJob]) -> impl Iterator<Item = &ResourceName> {
    jobs.iter().flat_map(|job| job.operation.resources())
}

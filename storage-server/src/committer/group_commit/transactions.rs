//! The commit of transactions: lock all rows, load, decide, make durable, answer.

use std::{
    collections::{BTreeSet, HashSet},
    time::Instant,
};

use fence::ResourceName;

use super::GroupCommit;
use crate::{
    committer::{
        folded::PATIENCE,
        job::{TransactionJob, Unavailable, UnavailableOutcome},
    },
    row::Row,
    store::{
        Wanted, WantedValue,
        error::{ApplyError, UnreadableRow},
    },
    transaction::{DecidedTransaction, Rows},
};

/// What became of transactions that were tried together.
enum Tried {
    /// They are answered.
    Answered,
    /// A rival was faster, and they can be tried again.
    Contended(Vec<TransactionJob>),
    /// The row of one of them was locked for as long as a statement waits.
    Blocked(Vec<TransactionJob>),
    /// The row of one of them is unreadable.
    Unreadable(Vec<TransactionJob>, UnreadableRow),
}

impl GroupCommit {
    /// Decides the transactions, answers all that it can, and returns the others, whose rows were
    /// locked or changed by rivals.
    pub(in crate::committer) async fn commit_transactions(
        &self,
        batch: Vec<TransactionJob>,
    ) -> Vec<TransactionJob> {
        let operations = batch.iter().map(|job| job.operation.writes.len()).sum();
        self.metrics.note_batch(operations);
        self.try_transactions(batch).await
    }

    /// Tries transactions again whose rows have been locked, if they are free now, and returns those
    /// that are still undecided. Answers those that have waited for too long.
    pub(in crate::committer) async fn retry_transactions(
        &self,
        blocked: Vec<TransactionJob>,
    ) -> Vec<TransactionJob> {
        let (free, mut undecided) = self.split_free(blocked).await;
        undecided.extend(self.try_transactions(free).await);
        answer_late(undecided, "other transactions kept a resource locked for too long")
    }

    /// Decides transactions on one resource, which is the same for all of them, in one change. Answers all
    /// that it can, and returns the others: a rival was faster.
    pub(in crate::committer) async fn commit_transactions_on_one(
        &self,
        batch: Vec<TransactionJob>,
    ) -> Vec<TransactionJob> {
        self.metrics.note_batch(batch.iter().map(|job| job.operation.writes.len()).sum());
        match self.commit_together(batch).await {
            Tried::Answered => Vec::new(),
            Tried::Contended(jobs) | Tried::Blocked(jobs) => {
                answer_late(jobs, "other clients kept changing the resource for too long")
            }
            Tried::Unreadable(jobs, unreadable) => {
                answer_unreadable(jobs, &unreadable);
                Vec::new()
            }
        }
    }

    /// Tries the transactions together. If one of them is in the way of the others, tries them in
    /// parts without it.
    async fn try_transactions(&self, batch: Vec<TransactionJob>) -> Vec<TransactionJob> {
        let mut undecided = Vec::new();
        let mut parts = vec![batch];
        while let Some(part) = parts.pop() {
            match self.commit_together(part).await {
                Tried::Answered => {}
                Tried::Contended(part) => undecided.extend(part),
                Tried::Blocked(part) if part.len() > 1 => {
                    let (free, blocked) = self.split_free(part).await;
                    if blocked.is_empty() {
                        // Another transaction may be inserting a row, which can't be seen.
                        parts.extend(halves(free));
                    } else {
                        parts.push(free);
                        undecided.extend(blocked);
                    }
                }
                Tried::Blocked(part) => undecided.extend(part),
                Tried::Unreadable(part, _) if part.len() > 1 => parts.extend(halves(part)),
                Tried::Unreadable(part, unreadable) => answer_unreadable(part, &unreadable),
            }
        }
        undecided
    }

    /// Commits the transactions in one transaction of the database, in order of arrival.
    async fn commit_together(&self, jobs: Vec<TransactionJob>) -> Tried {
        if jobs.is_empty() {
            return Tried::Answered;
        }
        // 1. Name all rows, in byte order: with any other, two servers could deadlock.
        let resources: BTreeSet<ResourceName> = resources_of(&jobs).cloned().collect();
        let wanted = |resource| Wanted { resource, value: WantedValue::Description };
        let wanted: Vec<_> = resources.iter().map(wanted).collect();

        // 2. Have the store lock and load them, and decide under the locks. So a resource that a
        //    transaction only compares stays as it is until the writes are durable. Without that,
        //    two transactions could each compare what the other one writes, and both take effect.
        let mut jobs = Some(jobs);
        let mut decided = Vec::new();
        let mut changed = Vec::new();
        let decide = Box::new(|before: &[Row]| {
            let mut rows: Rows = resources.iter().cloned().zip(before.iter().cloned()).collect();
            for job in jobs.take().expect("a store decides once") {
                let decision = job.operation.apply(&mut rows, self.enforcement);
                decided.push((job, decision));
            }
            let after: Vec<Row> = rows.into_values().collect();
            let rows = resources.iter().zip(before.iter().zip(&after));
            let rows = rows.filter(|(_, (before, after))| before != after);
            changed.extend(rows.map(|(resource, (_, after))| (resource, after.clone())));
            after
        });
        let begun = Instant::now();
        let applied = self.store.apply_under_locks(&wanted, decide).await;
        self.metrics.note_commit(begun.elapsed());

        // 3. Remember the rows that were changed, and forget those whose state is not known now.
        let is_known = matches!(applied, Ok(true));
        self.guesses
            .update(changed.iter().map(|(resource, after)| (*resource, is_known.then_some(after))));

        // 4. Answer only now. An answer before step 2 would report what a crash can undo.
        match applied {
            Ok(true) => {
                // If nothing was changed, nothing was committed.
                if !changed.is_empty() {
                    self.last_failure.forget();
                }
                for (job, decision) in decided {
                    job.answer(Ok(decision));
                }
                Tried::Answered
            }
            Ok(false) => Tried::Contended(forget_decisions(jobs, decided)),
            Err(ApplyError::Blocked) => Tried::Blocked(forget_decisions(jobs, decided)),
            Err(ApplyError::Unreadable(row)) => {
                Tried::Unreadable(forget_decisions(jobs, decided), row)
            }
            Err(error) => {
                let unavailable = self.unavailable(&error, resources.len());
                answer_all(jobs.into_iter().flatten(), &unavailable);
                // A transaction that was rejected did not take effect, even if others did.
                let (rejected, others): (Vec<_>, Vec<_>) =
                    decided.into_iter().partition(|(_, decision)| decision.is_rejection());
                let none = Unavailable { outcome: UnavailableOutcome::None, ..unavailable.clone() };
                answer_all(rejected.into_iter().map(|(job, _)| job), &none);
                answer_all(others.into_iter().map(|(job, _)| job), &unavailable);
                Tried::Answered
            }
        }
    }

    /// Splits the transactions into those of whose rows none is locked at this moment, and the
    /// others. If the database does not answer, all of them count as locked.
    async fn split_free(
        &self,
        jobs: Vec<TransactionJob>,
    ) -> (Vec<TransactionJob>, Vec<TransactionJob>) {
        if jobs.is_empty() {
            return (Vec::new(), jobs);
        }
        let resources: BTreeSet<ResourceName> = resources_of(&jobs).cloned().collect();
        let Ok(locked) = self.store.locked(&resources.iter().collect::<Vec<_>>()).await else {
            return (Vec::new(), jobs);
        };
        let locked = resources.iter().zip(locked).filter(|(_, locked)| *locked);
        let locked: HashSet<_> = locked.map(|(resource, _)| resource).collect();
        let is_free = |job: &TransactionJob| {
            job.operation.resources().all(|resource| !locked.contains(resource))
        };
        jobs.into_iter().partition(is_free)
    }
}

fn resources_of(jobs: &[TransactionJob]) -> impl Iterator<Item = &ResourceName> {
    jobs.iter().flat_map(|job| job.operation.resources())
}

fn halves(mut jobs: Vec<TransactionJob>) -> [Vec<TransactionJob>; 2] {
    let second = jobs.split_off(jobs.len() / 2);
    [second, jobs]
}

/// The jobs, whether they were decided or not.
fn forget_decisions(
    jobs: Option<Vec<TransactionJob>>,
    decided: Vec<(TransactionJob, DecidedTransaction)>,
) -> Vec<TransactionJob> {
    jobs.unwrap_or_else(|| decided.into_iter().map(|(job, _)| job).collect())
}

/// Answers the jobs that have waited for too long, and returns the others.
fn answer_late(jobs: Vec<TransactionJob>, reason: &str) -> Vec<TransactionJob> {
    let (in_time, late): (Vec<_>, Vec<_>) =
        jobs.into_iter().partition(|job| job.waited() < PATIENCE);
    for job in late {
        tracing::warn!(resources = job.operation.resources().count(), "{reason}");
        let outcome = UnavailableOutcome::None;
        job.answer(Err(Unavailable { outcome, reason: reason.to_owned() }));
    }
    in_time
}

fn answer_unreadable(jobs: Vec<TransactionJob>, unreadable: &UnreadableRow) {
    tracing::error!("{unreadable}");
    let (outcome, reason) = (UnavailableOutcome::None, unreadable.to_string());
    answer_all(jobs, &Unavailable { outcome, reason });
}

fn answer_all(jobs: impl IntoIterator<Item = TransactionJob>, unavailable: &Unavailable) {
    for job in jobs {
        job.answer(Err(unavailable.clone()));
    }
}

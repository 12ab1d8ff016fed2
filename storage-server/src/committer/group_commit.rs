//! The commit of one batch: load, decide, make durable, answer.

mod transactions;

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use fence::ResourceName;

use super::{
    failure::LastFailure,
    folded::{Fate, Folded, Undecided},
    guesses::Guesses,
    job::{Job, JobsByResource, Unavailable, UnavailableOutcome},
};
use crate::{
    causes::with_causes,
    config::Enforcement,
    memory_budget::SMALL_BYTES,
    metrics::CommitMetrics,
    row::Row,
    store::{
        Change, Store, Wanted, WantedValue,
        error::{ApplyError, UnreadableRow},
    },
};

/// Commits batches.
pub(super) struct GroupCommit {
    store: Arc<dyn Store>,
    enforcement: Enforcement,
    guesses: Guesses,
    last_failure: LastFailure,
    metrics: CommitMetrics,
}

impl GroupCommit {
    pub(super) fn new(
        store: Arc<dyn Store>,
        enforcement: Enforcement,
        metrics: CommitMetrics,
    ) -> Self {
        Self {
            store,
            enforcement,
            guesses: Guesses::default(),
            last_failure: LastFailure::default(),
            metrics,
        }
    }

    /// Shows whether the last commit failed.
    pub(super) fn last_failure(&self) -> LastFailure {
        self.last_failure.clone()
    }

    /// Decides the batch, answers all jobs that it can, and returns the others.
    pub(super) async fn commit(&self, batch: Vec<Job>) -> Undecided {
        let mut undecided = Undecided::default();
        self.metrics.note_batch(batch.len());

        // 1. Group the jobs by resource, in order of arrival: all jobs on one resource become one
        //    change of its row.
        let mut groups = JobsByResource::new();
        for job in batch {
            groups.entry(job.operation.resource.clone()).or_default().push(job);
        }

        // 2. Apply jobs to rows that this server changed last, without loading these. Step 5 proves
        //    each guess: the store makes a change only if the row still is as guessed. All guesses
        //    are forgotten if the database may have lost changes since they were made.
        self.guesses.enter(self.store.connection_epoch());
        let (mut changed, to_load) = self.fold_guesses(groups);

        // 3. Load all other rows, and apply their jobs. Answer jobs that changed nothing, such as
        //    rejected ones, at once: the loaded row, on which they were decided, is durable. On a
        //    guess, such an answer could be wrong, as no compare-and-set would prove the guess.
        for folded in self.load_and_fold(to_load).await {
            if folded.is_change() {
                changed.push(folded);
            } else {
                folded.answer(Fate::Applied, &mut undecided);
            }
        }

        // 4. Sort the changes by name. The database locks rows in this order: with any other, two
        //    servers that share a database could deadlock.
        changed.sort_by(|a, b| a.resource.cmp(&b.resource));
        let changes: Vec<_> = changed.iter().map(Folded::change).collect();

        // 5. Make all changes durable in one transaction. Each is compared with its row, and left
        //    out if a rival has changed the row since it was loaded.
        let fates = self.apply(&changes).await;

        // 6. Remember the rows that were changed, and forget those whose state is not known now.
        self.guesses.update(changes.iter().zip(&fates).map(|(change, fate)| {
            let known = matches!(fate, Fate::Applied).then_some(change.after);
            (change.resource, known)
        }));

        // 7. Answer only now. An answer before step 5 would report a write that a crash can undo.
        for (folded, fate) in changed.into_iter().zip(fates) {
            folded.answer(fate, &mut undecided);
        }
        undecided
    }

    /// Decides the jobs on one resource under its row's lock, which keeps rivals away.
    pub(super) async fn commit_alone(&self, resource: ResourceName, jobs: Vec<Job>) -> Undecided {
        let wanted = Wanted { resource: &resource, value: wanted_value(&jobs) };
        let mut jobs = Some(jobs);
        let mut folded = None;
        let decide = Box::new(|before: &[Row]| {
            let jobs = jobs.take().expect("a store decides once");
            let folded = folded.insert(self.fold(resource.clone(), jobs, before[0].clone()));
            vec![folded.after().clone()]
        });
        let begun = Instant::now();
        let applied = self.store.apply_under_locks(&[wanted], decide).await;
        self.metrics.note_commit(begun.elapsed());
        let fate = match applied {
            Ok(true) => {
                if folded.as_ref().is_some_and(Folded::is_change) {
                    self.last_failure.forget();
                }
                Fate::Applied
            }
            Ok(false) => Fate::Contended,
            Err(ApplyError::Blocked) => Fate::Blocked,
            Err(error) => Fate::Unavailable(self.unavailable(&error, 1)),
        };
        let mut undecided = Undecided::default();
        self.guesses.update([(&resource, None)].into_iter());
        if let Some(folded) = folded {
            folded.answer(fate, &mut undecided);
        } else {
            for job in jobs.into_iter().flatten() {
                undecided.retry_or_answer(job, &fate);
            }
        }
        undecided
    }

    /// Folds groups whose row can be guessed and would change, and returns the other groups, whose
    /// rows must be loaded.
    fn fold_guesses(&self, groups: JobsByResource) -> (Vec<Folded>, JobsByResource) {
        let mut changed = Vec::with_capacity(groups.len());
        let mut to_load = BTreeMap::new();
        for (resource, jobs) in groups {
            // A guess doesn't hold the value, which a read needs.
            let is_read = jobs.iter().any(Job::is_read);
            let guess = if is_read { None } else { self.guesses.get(&resource) };
            let Some(row) = guess else {
                to_load.insert(resource, jobs);
                continue;
            };
            let folded = self.fold(resource, jobs, row);
            if folded.is_change() {
                changed.push(folded);
            } else {
                to_load.extend([folded.into_jobs()]);
            }
        }
        (changed, to_load)
    }

    /// Loads and folds the groups. If loading fails, answers their jobs, and returns nothing. Jobs on
    /// an unreadable row are answered, too, and their row is left alone.
    async fn load_and_fold(&self, groups: JobsByResource) -> Vec<Folded> {
        match self.load(&groups).await {
            Ok(rows) => groups
                .into_iter()
                .zip(rows)
                .filter_map(|((resource, jobs), row)| match row {
                    Ok(row) => Some(self.fold(resource, jobs, row)),
                    Err(unreadable) => {
                        answer_unreadable(jobs, &unreadable);
                        None
                    }
                })
                .collect(),
            Err(unavailable) => {
                for job in groups.into_values().flatten() {
                    job.answer(Err(unavailable.clone()));
                }
                Vec::new()
            }
        }
    }

    async fn load(
        &self,
        groups: &JobsByResource,
    ) -> Result<Vec<Result<Row, UnreadableRow>>, Unavailable> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let wanted: Vec<_> = groups
            .iter()
            .map(|(resource, jobs)| Wanted { resource, value: wanted_value(jobs) })
            .collect();
        self.store.load(&wanted).await.map_err(|error| {
            let reason = with_causes(&error);
            let database = self.store.database();
            tracing::error!(database, resources = wanted.len(), "a batch was not loaded: {reason}");
            Unavailable { outcome: UnavailableOutcome::None, reason }
        })
    }

    fn fold(&self, resource: ResourceName, jobs: Vec<Job>, before: Row) -> Folded {
        Folded::new(resource, jobs, before, self.enforcement)
    }

    /// Applies the changes. If locks are in the way, splits off the changes that wait for them, and
    /// applies the others.
    async fn apply(&self, changes: &[Change<'_>]) -> Vec<Fate> {
        let mut fates = vec![Fate::Blocked; changes.len()];
        let mut parts: Vec<Vec<usize>> = vec![(0..changes.len()).collect()];
        while let Some(part) = parts.pop() {
            let changes: Vec<_> = part.iter().map(|&index| changes[index]).collect();
            if changes.is_empty() {
                continue;
            }
            let begun = Instant::now();
            let applied = self.store.apply(&changes).await;
            self.metrics.note_commit(begun.elapsed());
            match applied {
                Ok(applied) => {
                    if applied.contains(&true) {
                        self.last_failure.forget();
                    }
                    for (index, applied) in part.into_iter().zip(applied) {
                        fates[index] = if applied { Fate::Applied } else { Fate::Contended };
                    }
                }
                Err(ApplyError::Blocked) if changes.len() > 1 => {
                    parts.extend(self.without_blocked(part, &changes).await);
                }
                Err(ApplyError::Blocked) => {}
                Err(error) => {
                    let fate = Fate::Unavailable(self.unavailable(&error, changes.len()));
                    for index in part {
                        fates[index] = fate.clone();
                    }
                }
            }
        }
        fates
    }

    /// The part without the changes whose rows are locked. If no row is locked, another transaction
    /// may be inserting one, which can't be seen: returns both halves of the part, to find it. If the
    /// database does not answer, all of the part stays blocked.
    async fn without_blocked(
        &self,
        mut part: Vec<usize>,
        changes: &[Change<'_>],
    ) -> Vec<Vec<usize>> {
        let resources: Vec<_> = changes.iter().map(|change| change.resource).collect();
        let Ok(locked) = self.store.locked(&resources).await else {
            return Vec::new();
        };
        if locked.contains(&true) {
            let free = part.into_iter().zip(locked).filter(|(_, locked)| !locked);
            return vec![free.map(|(index, _)| index).collect()];
        }
        let second = part.split_off(part.len() / 2);
        vec![part, second]
    }

    fn unavailable(&self, error: &ApplyError, resources: usize) -> Unavailable {
        let reason = with_causes(error);
        let database = self.store.database();
        tracing::error!(database, resources, "a batch was not committed: {reason}");
        let outcome = match error {
            ApplyError::Unknown(_) | ApplyError::Lost(_) => UnavailableOutcome::Unknown,
            ApplyError::Unchanged(_) | ApplyError::Unreadable(_) | ApplyError::Blocked => {
                UnavailableOutcome::None
            }
        };
        if !error.concerns_one_row() {
            self.last_failure.note(&reason);
        }
        Unavailable { outcome, reason }
    }
}

fn answer_unreadable(jobs: Vec<Job>, unreadable: &UnreadableRow) {
    tracing::error!("{unreadable}");
    for job in jobs {
        let outcome = UnavailableOutcome::None;
        job.answer(Err(Unavailable { outcome, reason: unreadable.to_string() }));
    }
}

/// A large value is loaded by the reads themselves, which must not hold up writes.
fn wanted_value(jobs: &[Job]) -> WantedValue {
    if jobs.iter().any(Job::is_read) {
        WantedValue::AtMost(SMALL_BYTES)
    } else {
        WantedValue::Description
    }
}

#[cfg(test)]
mod tests;

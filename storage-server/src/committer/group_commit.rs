//! The commit of jobs: load, decide, make durable, answer.
//!
//! A decision is answered only if one thing has proved it: the store has applied the changes of its group;
//! or all rows of its group were loaded at one moment, and none changes; or it was made under the locks of
//! its rows.

use std::sync::Arc;

use fence::ResourceName;
use tokio::time::Instant;

use super::{
    failure::LastFailure,
    group::{Decisions, Fate, Group, grouped},
    guesses::Guesses,
    job::{Job, Unavailable, UnavailableOutcome, still_wanted},
};
use crate::{
    causes::with_causes,
    config::Enforcement,
    metrics::CommitMetrics,
    row::Row,
    store::{Change, Store, error::ApplyError},
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
    pub(super) async fn commit(&self, batch: Vec<Job>) -> Vec<Job> {
        let batch = still_wanted(batch);
        if batch.is_empty() {
            return batch;
        }
        self.metrics.note_batch(batch.iter().map(|job| job.transaction.writes.len()).sum());
        let mut undecided = Vec::new();

        // 1. Apply jobs to rows that this server changed last, without loading these. Step 4 proves
        //    each guess: the store makes a change only if the row still is as guessed. All guesses
        //    are forgotten if the database may have lost changes since they were made.
        self.guesses.enter(self.store.connection_epoch());
        let (mut changed, mut to_load) = (Vec::new(), Vec::new());
        for group in grouped(batch) {
            match self.guess(&group).map(|rows| group.decide(rows, self.enforcement)) {
                Some(decisions) if decisions.is_change() => changed.push((group, decisions)),
                _ => to_load.push(group),
            }
        }

        // 2. Load all other rows, and apply their jobs.
        for (group, decisions) in self.load_and_decide(to_load, &mut undecided).await {
            if decisions.is_change() {
                changed.push((group, decisions));
            } else {
                // 3. Answer jobs that changed nothing, such as rejected ones, at once: the loaded rows,
                //    on which they were decided, are durable. On a guess, such an answer could be
                //    wrong, as no compare-and-set would prove the guess.
                group.answer(Some(decisions), Fate::Applied, &mut undecided);
            }
        }

        // 4. Make all changes durable in one transaction. Each is compared with its row, and its group
        //    left out if a rival has changed the row since it was loaded.
        let fates = self.apply(&changed).await;

        // 5. Answer only now. An answer before step 4 would report a write that a crash can undo.
        for ((group, decisions), fate) in changed.into_iter().zip(fates) {
            self.note_rows(&group, &decisions, &fate);
            group.answer(Some(decisions), fate, &mut undecided);
        }
        undecided
    }

    /// Decides jobs on a blocked resource under the locks of all of their rows, which keep rivals away. Answers
    /// all jobs that it can, and returns the others.
    pub(super) async fn commit_under_locks(
        &self,
        blocked: &ResourceName,
        jobs: Vec<Job>,
    ) -> Vec<Job> {
        let mut undecided = Vec::new();
        // All name the resource, so they are one group, unless all are late.
        let Some(group) = grouped(still_wanted(jobs)).pop() else { return undecided };
        let wanted: Vec<_> = group.wanted().collect();
        let mut decisions = None;
        let decide = Box::new(|before: &[Row]| {
            let decided = group.decide(before.to_vec(), self.enforcement);
            decisions.insert(decided).after().to_vec()
        });
        let begun = Instant::now();
        let applied = self.store.apply_under_locks(&wanted, decide).await;
        self.metrics.note_commit(begun.elapsed());
        let fate = match applied {
            Ok(true) => {
                if decisions.as_ref().is_some_and(Decisions::is_change) {
                    self.last_failure.forget();
                }
                Fate::Applied
            }
            Ok(false) | Err(ApplyError::LostRace) => Fate::Overtaken,
            Err(ApplyError::Blocked) => {
                let locked = self.locked(group.resources()).await;
                // Its row may be free by now, or be one that a rival inserts, which can't be seen.
                if locked.is_empty() || locked.contains(blocked) {
                    Fate::Locked(vec![blocked.clone()])
                } else {
                    Fate::Locked(locked)
                }
            }
            Err(ApplyError::Unreadable(row)) => {
                group.answer_unreadable(&row, &mut undecided);
                return undecided;
            }
            Err(error) => Fate::Unavailable(self.unavailable(&error, group.resources().len())),
        };
        if let Some(decisions) = &decisions {
            self.note_rows(&group, decisions, &fate);
        }
        group.answer(decisions, fate, &mut undecided);
        undecided
    }

    /// Those of the resources whose rows other transactions lock at this moment, as far as this can be seen.
    pub(super) async fn locked(&self, resources: &[ResourceName]) -> Vec<ResourceName> {
        let names: Vec<_> = resources.iter().collect();
        match self.store.locked(&names).await {
            Ok(locked) => {
                let locked = resources.iter().zip(locked).filter(|(_, is_locked)| *is_locked);
                locked.map(|(resource, _)| resource.clone()).collect()
            }
            // A try that waits for a lock finds out.
            Err(error) => {
                let (database, reason) = (self.store.database(), with_causes(&error));
                tracing::error!(database, "jobs wait for locks, and can't see whose: {reason}");
                Vec::new()
            }
        }
    }

    /// Remembers the rows of a group that was applied, and forgets those whose state is not known now.
    fn note_rows(&self, group: &Group, decisions: &Decisions, fate: &Fate) {
        let is_known = matches!(fate, Fate::Applied);
        let rows = group.resources().iter().zip(decisions.after());
        self.guesses.update(rows.map(|(resource, after)| (resource, is_known.then_some(after))));
    }

    /// The guessed rows of a group, if each has a guess.
    fn guess(&self, group: &Group) -> Option<Vec<Row>> {
        // A guess doesn't hold the value, which a read needs.
        if group.has_reads() {
            return None;
        }
        group.resources().iter().map(|resource| self.guesses.get(resource)).collect()
    }

    /// Loads and decides the groups. If loading fails, answers their jobs, and returns nothing. Jobs on an
    /// unreadable row are answered, too, and the others of their group are undecided.
    async fn load_and_decide(
        &self,
        groups: Vec<Group>,
        undecided: &mut Vec<Job>,
    ) -> Vec<(Group, Decisions)> {
        let wanted: Vec<_> = groups.iter().flat_map(Group::wanted).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let mut rows = match self.store.load(&wanted).await {
            Ok(rows) => rows.into_iter(),
            Err(error) => {
                let (database, resources) = (self.store.database(), wanted.len());
                let reason = with_causes(&error);
                tracing::error!(database, resources, "a batch was not loaded: {reason}");
                let unavailable = Unavailable { outcome: UnavailableOutcome::None, reason };
                for group in groups {
                    group.answer(None, Fate::Unavailable(unavailable.clone()), undecided);
                }
                return Vec::new();
            }
        };
        let mut decided = Vec::with_capacity(groups.len());
        for group in groups {
            let rows: Vec<_> = rows.by_ref().take(group.resources().len()).collect();
            match rows.into_iter().collect::<Result<Vec<_>, _>>() {
                Ok(rows) => {
                    let decisions = group.decide(rows, self.enforcement);
                    decided.push((group, decisions));
                }
                Err(unreadable) => group.answer_unreadable(&unreadable, undecided),
            }
        }
        decided
    }

    /// Applies the changes of groups. If one of them is in the way of the statement, splits it off, and applies
    /// the others.
    async fn apply(&self, groups: &[(Group, Decisions)]) -> Vec<Fate> {
        let mut fates = vec![Fate::Overtaken; groups.len()];
        let mut left: Vec<usize> = (0..groups.len()).collect();
        while !left.is_empty() {
            let (numbers, changes) = changes_of(groups, &left);
            let begun = Instant::now();
            let applied = self.store.apply(&changes).await;
            self.metrics.note_commit(begun.elapsed());
            let locked = match applied {
                Ok(applied) => {
                    if applied.contains(&true) {
                        self.last_failure.forget();
                    }
                    for (number, applied) in numbers.into_iter().zip(applied) {
                        fates[number] = if applied { Fate::Applied } else { Fate::Overtaken };
                    }
                    break;
                }
                Err(ApplyError::Blocked) => {
                    let resources = left.iter().flat_map(|&number| groups[number].0.resources());
                    self.locked(&resources.cloned().collect::<Vec<_>>()).await
                }
                Err(ApplyError::LostRace) => Vec::new(),
                Err(error) => {
                    let unavailable = self.unavailable(&error, changes.len());
                    left.iter().for_each(|&number| {
                        fates[number] = Fate::Unavailable(unavailable.clone());
                    });
                    break;
                }
            };
            // If no lock was seen, a rival inserts a row, or has inserted it. The next try will see it.
            let (hindered, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|&number| {
                let (group, decisions) = &groups[number];
                match locked.is_empty() {
                    true => decisions.inserts(),
                    false => group.resources().iter().any(|resource| locked.contains(resource)),
                }
            });
            // If it was none of these, all are tried again.
            left = if hindered.is_empty() { Vec::new() } else { others };
            if !locked.is_empty() {
                hindered
                    .into_iter()
                    .for_each(|number| fates[number] = Fate::Locked(locked.clone()));
            }
        }
        fates
    }

    fn unavailable(&self, error: &ApplyError, resources: usize) -> Unavailable {
        let reason = with_causes(error);
        let database = self.store.database();
        tracing::error!(database, resources, "a batch was not committed: {reason}");
        let outcome = match error {
            ApplyError::Unknown(_) | ApplyError::Lost(_) => UnavailableOutcome::Unknown,
            ApplyError::Unchanged(_)
            | ApplyError::Unreadable(_)
            | ApplyError::Blocked
            | ApplyError::LostRace => UnavailableOutcome::None,
        };
        if !error.concerns_one_row() {
            self.last_failure.note(&reason);
        }
        Unavailable { outcome, reason }
    }
}

/// The changes of some of the groups, and for each the number of its group. They are in the byte order of
/// their names. The database locks rows in this order: with any other, two servers that share a
/// database could deadlock.
fn changes_of<'a>(
    groups: &'a [(Group, Decisions)],
    numbers: &[usize],
) -> (Vec<usize>, Vec<Change<'a>>) {
    let changes = numbers.iter().flat_map(|&number| {
        let (group, decisions) = &groups[number];
        group.changes(decisions, number).map(move |change| (number, change))
    });
    let mut changes: Vec<_> = changes.collect();
    changes.sort_by(|(_, a), (_, b)| a.resource.cmp(b.resource));
    changes.into_iter().unzip()
}

#[cfg(test)]
mod tests;

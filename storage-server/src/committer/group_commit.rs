//! One batch: loaded, decided, made durable, answered.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fence::ResourceName;

use super::{Job, Unavailable, UnavailableOutcome, group, guesses::Guesses};
use crate::{
    config::Enforcement,
    operation::{Decided, Outcome},
    row::Row,
    store::{ApplyError, Change, Store, Wanted, WantedValue},
};

/// How long an operation may wait for rivals and for other people's locks.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an operation is tried again in batches, where a rival may always be faster, before it
/// goes to the lane in which rivals are kept away.
const CONTENDED_PATIENCE: Duration = Duration::from_millis(50);

/// What a batch needs to be committed.
pub(super) struct GroupCommit {
    store: Arc<dyn Store>,
    enforcement: Enforcement,
    guesses: Guesses,
}

/// The jobs of a batch that could not be decided yet.
#[derive(Default)]
pub(super) struct Left {
    /// A rival changed the resource.
    pub(super) contended: Vec<Job>,
    /// Somebody else's lock was in the way for as long as a statement waits, or rivals have been
    /// faster for a while.
    pub(super) blocked: Vec<Job>,
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
    pub(super) fn new(store: Arc<dyn Store>, enforcement: Enforcement) -> Self {
        Self { store, enforcement, guesses: Guesses::default() }
    }

    /// Decides the batch and answers all of it that can be answered.
    pub(super) async fn commit(&self, batch: Vec<Job>) -> Left {
        let mut groups = BTreeMap::new();
        for job in batch {
            group(&mut groups, job);
        }
        let mut left = Left::default();
        let (mut changed, to_load) = self.fold_guesses(groups);
        for folded in self.load_and_fold(to_load).await {
            if folded.is_change() {
                changed.push(folded);
            } else {
                // What changes nothing is decided by a row that is durable already.
                folded.settle(Fate::Applied, &mut left);
            }
        }
        changed.sort_by(|a, b| a.resource.cmp(&b.resource));
        let changes: Vec<_> = changed.iter().map(Folded::change).collect();
        let fates = self.apply(&changes).await;
        self.guesses.learn(changes.iter().zip(&fates).map(|(change, fate)| {
            let known = matches!(fate, Fate::Applied).then_some(change.after);
            (change.resource, known)
        }));
        for (folded, fate) in changed.into_iter().zip(fates) {
            folded.settle(fate, &mut left);
        }
        left
    }

    /// Decides the operations on one resource while its row is kept from rivals.
    pub(super) async fn commit_alone(&self, resource: ResourceName, jobs: Vec<Job>) -> Left {
        let wanted = Wanted { resource: &resource, value: wanted_value(&jobs) };
        let mut undecided = Some(jobs);
        let mut folded = None;
        let decide = Box::new(|before: &Row| {
            let jobs = undecided.take().expect("it is decided once");
            let folded = folded.insert(self.fold(resource.clone(), jobs, before.clone()));
            folded.after.clone()
        });
        let fate = match self.store.apply_under_lock(wanted, decide).await {
            Ok(true) => Fate::Applied,
            Ok(false) => Fate::Contended,
            Err(ApplyError::Blocked) => Fate::Blocked,
            Err(error) => Fate::unavailable(&error, 1),
        };
        let mut left = Left::default();
        self.guesses.learn([(&resource, None)].into_iter());
        if let Some(folded) = folded {
            folded.settle(fate, &mut left);
        } else {
            for job in undecided.into_iter().flatten() {
                left.settle(job, &fate);
            }
        }
        left
    }

    /// Folds the groups whose row can be guessed, if that comes to a change: the store makes it only
    /// if the guess was right. All other groups are to be loaded.
    fn fold_guesses(
        &self,
        groups: BTreeMap<ResourceName, Vec<Job>>,
    ) -> (Vec<Folded>, BTreeMap<ResourceName, Vec<Job>>) {
        let mut changed = Vec::with_capacity(groups.len());
        let mut to_load = BTreeMap::new();
        for (resource, jobs) in groups {
            let guess = if jobs.iter().any(Job::reads) { None } else { self.guesses.of(&resource) };
            let Some(row) = guess else {
                to_load.insert(resource, jobs);
                continue;
            };
            let folded = self.fold(resource, jobs, row);
            if folded.is_change() {
                changed.push(folded);
            } else {
                let jobs = folded.decided.into_iter().map(|(job, _)| job).collect();
                to_load.insert(folded.resource, jobs);
            }
        }
        (changed, to_load)
    }

    /// Loads and folds the groups. If they can't be loaded, they are told so.
    async fn load_and_fold(&self, groups: BTreeMap<ResourceName, Vec<Job>>) -> Vec<Folded> {
        match self.load(&groups).await {
            Ok(rows) => groups
                .into_iter()
                .zip(rows)
                .map(|((resource, jobs), row)| self.fold(resource, jobs, row))
                .collect(),
            Err(unavailable) => {
                for job in groups.into_values().flatten() {
                    job.tell(Err(unavailable.clone()));
                }
                Vec::new()
            }
        }
    }

    async fn load(
        &self,
        groups: &BTreeMap<ResourceName, Vec<Job>>,
    ) -> Result<Vec<Row>, Unavailable> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let wanted: Vec<_> = groups
            .iter()
            .map(|(resource, jobs)| Wanted { resource, value: wanted_value(jobs) })
            .collect();
        self.store.load(&wanted).await.map_err(|error| {
            tracing::error!(resources = wanted.len(), "a batch was not loaded: {error}");
            Unavailable { outcome: UnavailableOutcome::None, reason: error.to_string() }
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
        Folded { resource, decided, before, after }
    }

    /// Applies the changes. What somebody else's locks are in the way of is split off, and the rest
    /// goes on.
    async fn apply(&self, changes: &[Change<'_>]) -> Vec<Fate> {
        let mut fates = vec![Fate::Blocked; changes.len()];
        let mut parts: Vec<Vec<usize>> = vec![(0..changes.len()).collect()];
        while let Some(part) = parts.pop() {
            let changes: Vec<_> = part.iter().map(|&index| changes[index]).collect();
            if changes.is_empty() {
                continue;
            }
            match self.store.apply(&changes).await {
                Ok(applied) => {
                    for (index, applied) in part.into_iter().zip(applied) {
                        fates[index] = if applied { Fate::Applied } else { Fate::Contended };
                    }
                }
                Err(ApplyError::Blocked) if changes.len() > 1 => {
                    parts.extend(self.without_blocked(part, &changes).await);
                }
                Err(ApplyError::Blocked) => {}
                Err(error) => {
                    let fate = Fate::unavailable(&error, changes.len());
                    for index in part {
                        fates[index] = fate.clone();
                    }
                }
            }
        }
        fates
    }

    /// The part without what is locked; both its halves if nothing is, as it may be a row that
    /// somebody else inserts which is in the way.
    async fn without_blocked(
        &self,
        mut part: Vec<usize>,
        changes: &[Change<'_>],
    ) -> Vec<Vec<usize>> {
        let resources: Vec<_> = changes.iter().map(|change| change.resource).collect();
        let locked = self.store.locked(&resources).await.unwrap_or_default();
        if locked.contains(&true) {
            let free = part.into_iter().zip(locked).filter(|(_, locked)| !locked);
            return vec![free.map(|(index, _)| index).collect()];
        }
        let second = part.split_off(part.len() / 2);
        vec![part, second]
    }
}

impl Folded {
    fn is_change(&self) -> bool {
        self.before != self.after
    }

    fn change(&self) -> Change<'_> {
        Change { resource: &self.resource, before: &self.before, after: &self.after }
    }

    /// Tells the decisions, which are durable if the change was applied; leaves the jobs whose turn
    /// is yet to come.
    fn settle(self, fate: Fate, left: &mut Left) {
        for (job, decided) in self.decided {
            match &fate {
                Fate::Applied => job.tell(Ok(decided)),
                // What the rule refused would not have happened in any case.
                Fate::Unavailable(unavailable)
                    if matches!(decided.outcome, Outcome::Refused(_)) =>
                {
                    let outcome = UnavailableOutcome::None;
                    job.tell(Err(Unavailable { outcome, ..unavailable.clone() }));
                }
                fate => left.settle(job, fate),
            }
        }
    }
}

impl Left {
    /// Leaves a job that could not be decided for another try, unless it has waited for too long.
    fn settle(&mut self, job: Job, fate: &Fate) {
        let waited = job.queued.elapsed();
        match fate {
            Fate::Unavailable(unavailable) => job.tell(Err(unavailable.clone())),
            Fate::Contended if waited < CONTENDED_PATIENCE => self.contended.push(job),
            Fate::Contended | Fate::Blocked if waited < PATIENCE => self.blocked.push(job),
            Fate::Contended | Fate::Blocked => {
                let reason = "others kept the resource locked for too long";
                tracing::warn!(resource = %job.operation.resource, "{reason}");
                let outcome = UnavailableOutcome::None;
                job.tell(Err(Unavailable { outcome, reason: reason.to_owned() }));
            }
            Fate::Applied => unreachable!("what was applied was decided"),
        }
    }
}

impl Fate {
    fn unavailable(error: &ApplyError, resources: usize) -> Self {
        tracing::error!(resources, "a batch was not committed: {error}");
        let outcome = match error {
            ApplyError::Unknown(_) => UnavailableOutcome::Unknown,
            ApplyError::Unchanged(_) | ApplyError::Blocked => UnavailableOutcome::None,
        };
        Self::Unavailable(Unavailable { outcome, reason: error.to_string() })
    }
}

fn wanted_value(jobs: &[Job]) -> WantedValue {
    if jobs.iter().any(Job::reads) { WantedValue::Whole } else { WantedValue::Presence }
}

#[cfg(test)]
mod tests;

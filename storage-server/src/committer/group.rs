//! Jobs that share resources, and the decisions on them.

use std::collections::{BTreeMap, HashSet};

use fence::ResourceName;

use super::job::{Job, Obstacle, Unavailable};
use crate::{
    config::Enforcement,
    memory_budget::SMALL_BYTES,
    row::Row,
    store::{Change, Wanted, WantedValue, error::UnreadableRow},
    transaction::DecidedTransaction,
};

/// Jobs that share resources, directly or through others. They are decided one after the other, and what
/// all of them change is made together or not at all.
#[derive(Debug)]
pub(super) struct Group {
    /// In order of arrival.
    jobs: Vec<Job>,
    /// In the byte order of the names.
    resources: Vec<ResourceName>,
}

/// The decisions on the jobs of a group.
#[derive(Debug)]
pub(super) struct Decisions {
    /// The rows of the group's resources as they were decided on, and as the jobs leave them.
    before: Vec<Row>,
    after: Vec<Row>,
    decided: Vec<DecidedTransaction>,
}

/// What happened to the changes of a group.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// They are durable.
    Applied,
    /// None of them was made: a rival has changed a row first.
    Overtaken,
    /// None of them was made: other transactions lock these of the group's rows.
    Locked(Vec<ResourceName>),
    Unavailable(Unavailable),
}

/// Groups jobs, which are in order of arrival.
pub(super) fn grouped(jobs: Vec<Job>) -> Vec<Group> {
    // 1. Number the resources, and connect those of each job.
    let mut numbers = BTreeMap::new();
    let mut connected = Vec::new();
    let mut firsts = Vec::with_capacity(jobs.len());
    for job in &jobs {
        let mut first = None;
        for resource in job.transaction.resources() {
            let number = *numbers.entry(resource).or_insert_with(|| {
                connected.push(connected.len());
                connected.len() - 1
            });
            let number = root(&mut connected, number);
            let first = root(&mut connected, *first.get_or_insert(number));
            connected[number] = first;
        }
        firsts.push(first.expect("a transaction has a write"));
    }

    // 2. Make a group of all that are connected.
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    for (resource, number) in numbers {
        let group = groups.entry(root(&mut connected, number));
        let group = group.or_insert_with(|| Group { jobs: Vec::new(), resources: Vec::new() });
        group.resources.push(resource.clone());
    }
    for (job, first) in jobs.into_iter().zip(firsts) {
        let group = groups.get_mut(&root(&mut connected, first));
        group.expect("its resources are in it").jobs.push(job);
    }
    groups.into_values().collect()
}

/// The number that stands for all numbers that are connected with this one. Shortens the way to it.
fn root(connected: &mut [usize], mut number: usize) -> usize {
    while connected[number] != number {
        connected[number] = connected[connected[number]];
        number = connected[number];
    }
    number
}

impl Group {
    /// The resources, in the byte order of their names.
    pub(super) fn resources(&self) -> &[ResourceName] {
        &self.resources
    }

    pub(super) fn has_reads(&self) -> bool {
        self.jobs.iter().any(|job| job.reads().next().is_some())
    }

    /// The rows to load, with the values that are read. A large value is loaded by the reads themselves, which
    /// must not hold up writes.
    pub(super) fn wanted(&self) -> impl Iterator<Item = Wanted<'_>> {
        let read: HashSet<_> = self.jobs.iter().flat_map(Job::reads).collect();
        self.resources.iter().map(move |resource| {
            let value = match read.contains(resource) {
                true => WantedValue::AtMost(SMALL_BYTES),
                false => WantedValue::Description,
            };
            Wanted { resource, value }
        })
    }

    /// Applies the jobs to the rows of the resources, in order of arrival.
    pub(super) fn decide(&self, before: Vec<Row>, enforcement: Enforcement) -> Decisions {
        let mut after = before.clone();
        let decide = |job: &Job| job.transaction.apply(&self.resources, &mut after, enforcement);
        let decided = self.jobs.iter().map(decide).collect();
        Decisions { before, after, decided }
    }

    /// The changes of the group, which has this number. Of several rows, those that stay as they are must
    /// still be as they were decided on, too: also for a rejected job, whose decision is answered with the others.
    pub(super) fn changes<'a>(
        &'a self,
        decisions: &'a Decisions,
        number: usize,
    ) -> impl Iterator<Item = Change<'a>> {
        let group = (self.resources.len() > 1).then_some(number);
        let rows = decisions.before.iter().zip(&decisions.after);
        let changes = self.resources.iter().zip(rows);
        changes.map(move |(resource, (before, after))| Change { resource, before, after, group })
    }

    /// Answers the jobs if their changes were applied, which makes the decisions durable. Otherwise adds
    /// them to the undecided ones, or answers that they are unavailable.
    pub(super) fn answer(self, decisions: Option<Decisions>, fate: Fate, undecided: &mut Vec<Job>) {
        let mut decided = decisions.into_iter().flat_map(|decisions| decisions.decided);
        for mut job in self.jobs {
            match (&fate, decided.next()) {
                (Fate::Applied, decided) => job.answer(Ok(decided.expect("it was decided"))),
                // It was rejected, so it did not take effect, even if the others of the group did.
                (Fate::Unavailable(unavailable), Some(decided)) if decided.is_rejection() => {
                    job.give_up(&unavailable.reason);
                }
                (Fate::Unavailable(unavailable), _) => job.answer(Err(unavailable.clone())),
                (Fate::Overtaken, _) => {
                    job.note_obstacle(Some(Obstacle::Rivals));
                    undecided.push(job);
                }
                // Nothing is in the way of those that name no locked row.
                (Fate::Locked(locked), _) => {
                    let locked = locked.iter().find(|resource| job.names(resource.as_str()));
                    job.note_obstacle(locked.cloned().map(Obstacle::Lock));
                    undecided.push(job);
                }
            }
        }
    }

    /// Answers the jobs on an unreadable row, and adds the others to the undecided ones.
    pub(super) fn answer_unreadable(self, unreadable: &UnreadableRow, undecided: &mut Vec<Job>) {
        tracing::error!("{unreadable}");
        let names_it = |job: &Job| job.names(unreadable.resource());
        let (unavailable, mut others): (Vec<_>, Vec<_>) = self.jobs.into_iter().partition(names_it);
        others.iter_mut().for_each(|job| job.note_obstacle(None));
        for job in unavailable {
            job.give_up(&unreadable.to_string());
        }
        undecided.extend(others);
    }
}

impl Decisions {
    pub(super) fn is_change(&self) -> bool {
        self.before != self.after
    }

    /// Whether it inserts a row, of a resource that was never used.
    pub(super) fn inserts(&self) -> bool {
        self.before.iter().any(|row| row.version == 0 && row.fence.is_none())
    }

    /// The rows as the jobs leave them, in the order of the group's resources.
    pub(super) fn after(&self) -> &[Row] {
        &self.after
    }
}

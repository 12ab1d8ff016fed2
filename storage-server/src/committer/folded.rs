//! The jobs on one resource, applied to its row, and what happens to them after the commit.

use std::time::Duration;

use fence::ResourceName;

use super::job::{Job, Unavailable, UnavailableOutcome};
use crate::{config::Enforcement, operation::Decided, row::Row, store::Change};

/// How long an operation is retried while rivals or other people's locks are in the way.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How long an operation is retried in batches, where a rival may always be faster. After that, it
/// moves to the blocked lane, where the row's lock keeps rivals away.
const CONTENDED_PATIENCE: Duration = Duration::from_millis(50);

/// The jobs on one resource, applied to its row in order of arrival.
pub(super) struct Folded {
    pub(super) resource: ResourceName,
    decided: Vec<(Job, Decided)>,
    before: Row,
    after: Row,
}

/// The jobs of a batch that could not be decided yet.
#[derive(Default)]
pub(super) struct Undecided {
    /// A rival changed the resource first.
    pub(super) contended: Vec<Job>,
    /// A lock was in the way for as long as a statement waits, or rivals were faster several times.
    pub(super) blocked: Vec<Job>,
}

/// What happened to a change in the store.
#[derive(Clone)]
pub(super) enum Fate {
    Applied,
    Contended,
    Blocked,
    Unavailable(Unavailable),
}

impl Folded {
    pub(super) fn new(
        resource: ResourceName,
        jobs: Vec<Job>,
        before: Row,
        enforcement: Enforcement,
    ) -> Self {
        let mut after = before.clone();
        let decided = jobs
            .into_iter()
            .map(|job| {
                let decided = after.apply(&job.operation, enforcement);
                (job, decided)
            })
            .collect();
        Self { resource, decided, before, after }
    }

    pub(super) fn is_change(&self) -> bool {
        self.before != self.after
    }

    pub(super) fn change(&self) -> Change<'_> {
        Change { resource: &self.resource, before: &self.before, after: &self.after, group: None }
    }

    /// The row after all jobs.
    pub(super) fn after(&self) -> &Row {
        &self.after
    }

    /// Forgets the decisions, and returns the resource and its jobs.
    pub(super) fn into_jobs(self) -> (ResourceName, Vec<Job>) {
        (self.resource, self.decided.into_iter().map(|(job, _)| job).collect())
    }

    /// Answers the jobs if the change was applied, which makes their decisions durable. Otherwise adds them to the undecided ones, or answers that they are unavailable.
    pub(super) fn answer(self, fate: Fate, undecided: &mut Undecided) {
        for (job, decided) in self.decided {
            match &fate {
                Fate::Applied => job.answer(Ok(decided)),
                // This operation was rejected, so it did not take effect, even if the others of the
                // same change did.
                Fate::Unavailable(unavailable) if decided.outcome.is_rejection() => {
                    let outcome = UnavailableOutcome::None;
                    job.answer(Err(Unavailable { outcome, ..unavailable.clone() }));
                }
                fate => undecided.retry_or_answer(job, fate),
            }
        }
    }
}

impl Undecided {
    /// Keeps a job for another try, unless no try can help or it has waited for too long.
    pub(super) fn retry_or_answer(&mut self, job: Job, fate: &Fate) {
        let waited = job.waited();
        match fate {
            Fate::Unavailable(unavailable) => job.answer(Err(unavailable.clone())),
            Fate::Contended if waited < CONTENDED_PATIENCE => self.contended.push(job),
            Fate::Contended | Fate::Blocked if waited < PATIENCE => self.blocked.push(job),
            Fate::Contended | Fate::Blocked => {
                let reason = match fate {
                    Fate::Contended => "other clients kept changing the resource for too long",
                    _ => "other transactions kept the resource locked for too long",
                };
                tracing::warn!(resource = %job.operation.resource, "{reason}");
                let outcome = UnavailableOutcome::None;
                job.answer(Err(Unavailable { outcome, reason: reason.to_owned() }));
            }
            Fate::Applied => unreachable!("the jobs of an applied change are decided"),
        }
    }
}

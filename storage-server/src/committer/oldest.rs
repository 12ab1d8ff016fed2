//! The oldest operation of a lane.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use super::job::Job;

/// When the oldest operation was queued that a lane has not decided. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Oldest(Arc<Mutex<Option<Instant>>>);

impl Oldest {
    /// Notes the jobs that the lane is about to decide.
    pub(super) fn note<'a, O: 'a, D: 'a>(&self, jobs: impl Iterator<Item = &'a Job<O, D>>) {
        self.note_queued(jobs.map(Job::queued).min());
    }

    /// Notes when the oldest operation was queued.
    pub(super) fn note_queued(&self, oldest: Option<Instant>) {
        *self.0.lock().expect("no panic while it is held") = oldest;
    }

    /// How long that operation has waited; zero if there is none.
    pub(super) fn waited(&self) -> Duration {
        let queued = *self.0.lock().expect("no panic while it is held");
        queued.map(|queued| queued.elapsed()).unwrap_or_default()
    }
}

//! One line of the report.

use super::{samples::Samples, work::Work};

/// One thing that is measured.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) subject: &'static str,
    pub(super) samples: Samples,
    /// What Redis did for it, over all samples.
    pub(super) work: Work,
}

impl Line {
    pub(super) fn new(subject: &'static str) -> Self {
        Self { subject, samples: Samples::default(), work: Work::default() }
    }

    /// Adds a round.
    pub(super) fn add(&mut self, (samples, work): (Samples, Work)) {
        self.samples.extend(samples);
        self.work += work;
    }

    /// A count of the work, for each sample.
    pub(super) fn each(&self, count: u64) -> f64 {
        count as f64 / self.samples.count() as f64
    }
}

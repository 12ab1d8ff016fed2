//! What is measured of one subject, in rounds.

use std::time::Duration;

use serde::Serialize;

use super::work::Work;

/// What one round measured.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) times: Vec<Duration>,
    /// What Redis did in the round.
    pub(super) work: Work,
}

/// All rounds of one subject.
#[derive(Debug)]
pub(super) struct Series {
    subject: &'static str,
    total: Round,
}

/// The times of a subject, as every report shows them.
#[derive(Debug, Serialize)]
pub(super) struct Times {
    subject: &'static str,
    count: usize,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

impl Series {
    pub(super) fn new(subject: &'static str) -> Self {
        Self { subject, total: Round::default() }
    }

    pub(super) fn add(&mut self, round: Round) {
        self.total.times.extend(round.times);
        self.total.work += round.work;
    }

    pub(super) fn subject(&self) -> &'static str {
        self.subject
    }

    pub(super) fn work(&self) -> &Work {
        &self.total.work
    }

    /// Divides a count by the number of times.
    pub(super) fn mean(&self, count: u64) -> f64 {
        count as f64 / self.total.times.len() as f64
    }

    /// The median, as a multiple of another subject's median.
    pub(super) fn p50_ratio(&self, other: &Self) -> f64 {
        self.quantile_us(0.5) / other.quantile_us(0.5)
    }

    /// The time in microseconds that this part of the times does not exceed; 0 if there are none.
    pub(super) fn quantile_us(&self, part: f64) -> f64 {
        let mut sorted = self.total.times.clone();
        sorted.sort_unstable();
        let rank = (part * sorted.len() as f64).ceil() as usize;
        let time = sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default();
        time.as_secs_f64() * 1e6
    }

    pub(super) fn times(&self) -> Times {
        let count = self.total.times.len();
        let (p50_us, p99_us) = (self.quantile_us(0.5), self.quantile_us(0.99));
        Times { subject: self.subject, count, p50_us, p99_us }
    }
}

impl Times {
    pub(super) fn cells(&self) -> [String; 4] {
        let us = |us| format!("{us:.1}");
        [self.subject.to_owned(), self.count.to_string(), us(self.p50_us), us(self.p99_us)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_times() {
        let mut series = Series::new("a subject");
        let times = (1..=100).rev().map(Duration::from_micros).collect();
        series.add(Round { times, work: Work::default() });
        assert_eq!(series.quantile_us(0.5), 50.0);
        assert_eq!(series.quantile_us(0.99), 99.0);
        assert_eq!(series.quantile_us(1.0), 100.0);
    }
}

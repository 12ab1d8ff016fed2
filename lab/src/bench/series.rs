//! What is measured of one subject, in parts.

use std::{borrow::Cow, ops::AddAssign, time::Duration};

use serde::{Deserialize, Serialize};

use super::work::Work;

/// What one part measured.
#[derive(Debug, Default)]
pub(super) struct Part<W = Work> {
    pub(super) times: Vec<Duration>,
    /// What the server did meanwhile.
    pub(super) work: W,
}

/// All parts of one subject.
#[derive(Debug)]
pub(super) struct Series<W = Work> {
    subject: Cow<'static, str>,
    total: Part<W>,
    /// The median of each part that was added.
    medians: Vec<Duration>,
}

/// The times of a subject, as every report shows them.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Times {
    subject: Cow<'static, str>,
    count: usize,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

impl<W: Default + AddAssign> Series<W> {
    pub(super) fn new(subject: impl Into<Cow<'static, str>>) -> Self {
        Self { subject: subject.into(), total: Part::default(), medians: Vec::new() }
    }

    pub(super) fn add(&mut self, part: Part<W>) {
        self.medians.push(quantile(&part.times, 0.5));
        self.total.times.extend(part.times);
        self.total.work += part.work;
    }

    pub(super) fn subject(&self) -> &str {
        &self.subject
    }

    pub(super) fn work(&self) -> &W {
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

    /// The ratio of the medians of one part, in the median of all parts. The parts of the other
    /// subject were measured in turn with these, so a moment in which the machine is slow affects
    /// both alike.
    pub(super) fn ratio_in_parts(&self, other: &Self) -> f64 {
        let pairs = self.medians.iter().zip(&other.medians);
        let mut ratios: Vec<_> = pairs.map(|(own, other)| own.div_duration_f64(*other)).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    }

    /// The time in microseconds that this part of the times does not exceed; 0 if there are none.
    pub(super) fn quantile_us(&self, part: f64) -> f64 {
        quantile(&self.total.times, part).as_secs_f64() * 1e6
    }

    pub(super) fn times(&self) -> Times {
        let count = self.total.times.len();
        let (p50_us, p99_us) = (self.quantile_us(0.5), self.quantile_us(0.99));
        Times { subject: self.subject.clone(), count, p50_us, p99_us }
    }
}

fn quantile(times: &[Duration], part: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

impl Times {
    pub(super) fn cells(&self) -> [String; 4] {
        let us = |us| format!("{us:.1}");
        [self.subject.to_string(), self.count.to_string(), us(self.p50_us), us(self.p99_us)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_times() {
        let mut series: Series = Series::new("a subject");
        let times = (1..=100).rev().map(Duration::from_micros).collect();
        series.add(Part { times, ..Part::default() });
        assert_eq!(series.quantile_us(0.5), 50.0);
        assert_eq!(series.quantile_us(0.99), 99.0);
        assert_eq!(series.quantile_us(1.0), 100.0);
    }

    #[test]
    fn slow_part_does_not_change_the_ratio() {
        let [mut fast, mut slow]: [Series; 2] = ["a subject", "another"].map(Series::new);
        for machine in [1, 5, 1] {
            let part = |micros: u64| Part {
                times: vec![Duration::from_micros(micros * machine); 3],
                ..Part::default()
            };
            fast.add(part(10));
            slow.add(part(15));
        }
        assert_eq!(slow.ratio_in_parts(&fast), 1.5);
    }
}

//! Times that were measured.

use std::time::Duration;

/// Times of one thing, measured again and again.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<Duration>);

impl Samples {
    pub(super) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The time, in microseconds, that so large a part of them does not exceed; 0 if there are none.
    pub(super) fn quantile_us(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (part * sorted.len() as f64).ceil() as usize;
        let time = sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default();
        time.as_secs_f64() * 1e6
    }
}

impl Extend<Duration> for Samples {
    fn extend<T: IntoIterator<Item = Duration>>(&mut self, times: T) {
        self.0.extend(times);
    }
}

impl IntoIterator for Samples {
    type Item = Duration;
    type IntoIter = std::vec::IntoIter<Duration>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let mut samples = Samples::default();
        samples.extend((1..=100).rev().map(Duration::from_micros));
        assert_eq!(samples.quantile_us(0.5), 50.0);
        assert_eq!(samples.quantile_us(0.99), 99.0);
        assert_eq!(samples.quantile_us(1.0), 100.0);
    }
}

//! The time axis: how far each moment is from its left end.
//!
//! Moments come in bursts of milliseconds with seconds between them, so the axis is not linear.
//! Each moment gets the space that its texts need; longer times get more space, but not in
//! proportion.

use super::story::{Span, Story};

/// The space after the last moment.
const TAIL: f64 = 24.0;

/// Where each moment is, from the left end of the time axis.
#[derive(Debug)]
pub(super) struct Scale {
    moments: Vec<f64>,
    width: f64,
}

impl Scale {
    /// A scale with these gaps after its moments, stretched to a width. The longer the time in a
    /// gap, the more it grows; `least` has the space that each gap needs for its time.
    pub(super) fn new(gaps: &[f64], least: &[f64], width: f64) -> Self {
        let more = width - gaps.iter().sum::<f64>();
        let weights: Vec<f64> = least.iter().map(|gap| gap.powi(3)).collect();
        let (_, between) = weights.split_last().expect("a story has a first moment");
        let sum: f64 = between.iter().sum();
        let mut moments = vec![0.0];
        let mut x = 0.0;
        for (gap, weight) in gaps.iter().zip(between) {
            x += gap + more * weight / sum;
            moments.push(x);
        }
        Self { moments, width }
    }

    /// The length of the axis.
    pub(super) fn width(&self) -> f64 {
        self.width
    }

    /// Where a moment is. The moment after the last one is the end of the axis.
    pub(super) fn x(&self, moment: usize) -> f64 {
        self.moments.get(moment).copied().unwrap_or(self.width)
    }

    /// Where a span begins and ends.
    pub(super) fn ends(&self, span: Span) -> [f64; 2] {
        [self.x(span.start), span.end.map_or(self.width, |end| self.x(end))]
    }

    /// Where all moments are.
    pub(super) fn moments(&self) -> &[f64] {
        &self.moments
    }
}

/// The least space between a moment and the next one, or the end of the axis.
pub(super) fn least_gap(story: &Story, moment: usize) -> f64 {
    const LEAST: f64 = 13.0;
    const PER_DOUBLING: f64 = 9.0;
    let Some(next_ms) = story.moments.get(moment + 1) else { return TAIL };
    #[expect(clippy::cast_precision_loss, reason = "a run is short")]
    let millis = next_ms.saturating_sub(story.moments[moment]) as f64;
    LEAST + PER_DOUBLING * (1.0 + millis / 4.0).log2()
}

//! What a bench is meant to reach.

use serde::Serialize;

/// A figure that is meant to stay on one side of a bound.
#[derive(Debug, Serialize)]
pub(super) struct Target {
    subject: String,
    #[serde(flatten)]
    bound: Bound,
    measured: f64,
    reached: bool,
}

/// Where a figure is meant to be.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    /// The larger the better.
    pub(super) fn at_least(subject: impl Into<String>, bound: f64, measured: f64) -> Self {
        Self::new(subject, Bound::AtLeast(bound), measured)
    }

    /// The smaller the better.
    pub(super) fn at_most(subject: impl Into<String>, bound: f64, measured: f64) -> Self {
        Self::new(subject, Bound::AtMost(bound), measured)
    }

    fn new(subject: impl Into<String>, bound: Bound, measured: f64) -> Self {
        let reached = match bound {
            Bound::AtLeast(bound) => measured >= bound,
            Bound::AtMost(bound) => measured <= bound,
        };
        Self { subject: subject.into(), bound, measured, reached }
    }

    pub(super) fn line(&self) -> String {
        let Self { subject, bound, measured, reached } = self;
        let bound = match bound {
            Bound::AtLeast(bound) => format!("at least {bound}"),
            Bound::AtMost(bound) => format!("at most {bound}"),
        };
        let reached = if *reached { "reached" } else { "MISSED" };
        format!("{subject}: {measured:.2}, to be {bound}: {reached}\n")
    }
}

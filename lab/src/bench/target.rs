//! What a bench is meant to reach.

use serde::Serialize;

/// A ratio that is meant to be reached.
#[derive(Debug, Serialize)]
pub(super) struct Target {
    ratio: &'static str,
    at_least: f64,
    measured: f64,
    reached: bool,
}

impl Target {
    pub(super) fn new(ratio: &'static str, at_least: f64, measured: f64) -> Self {
        Self { ratio, at_least, measured, reached: measured >= at_least }
    }

    pub(super) fn line(&self) -> String {
        let Self { ratio, at_least, measured, reached } = self;
        let reached = if *reached { "reached" } else { "MISSED" };
        format!("{ratio}: {measured:.2}, to be at least {at_least}: {reached}\n")
    }
}

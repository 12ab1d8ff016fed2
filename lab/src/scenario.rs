//! Scenarios: what goes wrong, played with real processes, with the fence and without.

mod client;
mod token_33_34;

use async_trait::async_trait;

use crate::record::{Recorder, RunRecord};

/// Something that goes wrong without a fence, and not with one.
#[async_trait(?Send)]
pub trait Scenario: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it claims, in one sentence.
    fn claim(&self) -> &'static str;

    /// Plays it in both worlds.
    ///
    /// # Errors
    /// If it can't be played; a claim that does not hold is no error.
    async fn run(&self, recorder: Recorder) -> anyhow::Result<RunRecord>;
}

/// All scenarios; the first is the one to begin with.
pub static ALL: &[&dyn Scenario] = &[&token_33_34::Token33And34];

/// The scenario of a name.
pub fn named(name: &str) -> Option<&'static dyn Scenario> {
    ALL.iter().copied().find(|scenario| scenario.name() == name)
}

//! What a scenario is, and how it is replayed.

use std::fmt;

use futures_util::future::LocalBoxFuture;
use serde::Serialize;

use super::stage::scene::Scene;
use crate::record::{Actor, Outcome, Outcomes, Recorder, RunRecord, World};

/// A danger that strikes in some worlds, and is averted in others.
#[derive(Serialize)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What goes wrong, in some words.
    pub title: &'static str,
    /// The target of the Makefile that installs what it needs beside Redis. Empty if it needs nothing else.
    pub needs: &'static str,
    /// How many seconds a replay takes, about.
    pub seconds: u8,
    /// What it claims, in one sentence.
    pub claim: &'static str,
    /// The worlds that it is replayed in: the unsafe ones first, then their safe twins.
    pub worlds: &'static [World],
    /// Who takes part, in the order of the timeline's tracks.
    pub tracks: &'static [Actor],
    /// Its story, in the world of the scene.
    #[serde(skip)]
    pub(crate) story: for<'a> fn(&'a mut Scene) -> LocalBoxFuture<'a, anyhow::Result<Outcome>>,
}

impl Scenario {
    /// Replays the scenario in all its worlds. Leases that will expire last this many times as
    /// long as on an idle machine.
    ///
    /// # Errors
    /// If a server or a client fails.
    pub async fn replay(&self, recorder: Recorder, ttl_factor: u32) -> anyhow::Result<RunRecord> {
        let mut scene = Scene::new(&self.worlds[0], recorder, ttl_factor);
        let mut outcomes = Outcomes::default();
        let mut holds = true;
        for world in self.worlds {
            scene.enter(world);
            let outcome = (self.story)(&mut scene).await?;
            holds &= outcome.meets(world.end);
            outcomes.insert(world.name.to_owned(), outcome);
        }
        let events = scene.recorder.take_events();
        Ok(RunRecord { scenario: self.name.to_owned(), holds, events, outcome: outcomes })
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Checks, Danger, Expected};

    const fn world(name: &'static str, danger: Danger, end: Expectations) -> World {
        World { name, title: name, danger, checks: Checks::Nothing, end }
    }

    type Expectations = &'static [(&'static str, Expected)];

    #[tokio::test]
    async fn a_run_in_which_nothing_goes_wrong_shows_nothing() {
        const LOSES_NOTHING: Scenario = Scenario {
            name: "loses-nothing",
            title: "nothing goes wrong",
            needs: "",
            seconds: 0,
            claim: "Something is lost in one world, and nothing in the other.",
            worlds: &[
                world("unsafe", Danger::Strikes, &[("updates_lost", Expected::Number(1))]),
                world("safe", Danger::Averted, &[("updates_lost", Expected::Number(0))]),
            ],
            tracks: &[],
            story: |_| Box::pin(async { Ok(Outcome::default().with("updates_lost", 0)) }),
        };
        let record = LOSES_NOTHING.replay(Recorder::start(|_| {}), 1).await.unwrap();
        assert_eq!(record.outcome.len(), 2);
        assert!(!record.holds);
    }
}

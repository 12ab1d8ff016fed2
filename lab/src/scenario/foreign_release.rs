//! A client that outlived its lease deletes a lock that is not its own any more.

use async_trait::async_trait;

use super::{
    Scenario,
    stage::late_release::{ANOTHERS_DELETED, LANES, NONE_DELETED, release_late},
};
use crate::{
    client::worker::Way,
    record::{Actor, Checks, Danger, Outcome, Recorder, World},
};
use testbed::Databases;

const WORLDS: [World; 2] = [
    World {
        name: "del",
        title: "DEL: a client gives the lock back by deleting it",
        danger: Danger::Strikes,
        checks: Checks::Nothing,
        end: &ANOTHERS_DELETED,
    },
    World {
        name: "one-script",
        title: "ONE SCRIPT: a release deletes the lock only if the releasing client still holds it",
        danger: Danger::Averted,
        checks: Checks::Nothing,
        end: &NONE_DELETED,
    },
];

#[derive(Debug)]
pub(super) struct ForeignRelease;

#[async_trait(?Send)]
impl Scenario for ForeignRelease {
    fn name(&self) -> &'static str {
        "foreign-release"
    }

    fn claim(&self) -> &'static str {
        "A client that was paused past its lease, and then gives the lock back with DEL, deletes somebody \
         else's lock and lets a third client in beside it; a release that compares the holder deletes \
         nothing."
    }

    fn worlds(&self) -> &'static [World] {
        &WORLDS
    }

    fn lanes(&self) -> &'static [Actor] {
        &LANES
    }

    async fn play(
        &self,
        world: &World,
        _: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let way = match world.danger {
            Danger::Strikes => Way::Del,
            Danger::Averted => Way::Scripts,
        };
        release_late(way, &["worked"], recorder).await
    }
}

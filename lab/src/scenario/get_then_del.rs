//! A release that compares the holder, but in a step of its own: the lock changes hands between
//! comparing and deleting.

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
        name: "get-then-del",
        title: "GET, THEN DEL: a client looks whether the lock is its own, and then deletes it",
        danger: Danger::Strikes,
        checks: Checks::Nothing,
        end: &ANOTHERS_DELETED,
    },
    World {
        name: "one-script",
        title: "ONE SCRIPT: Redis compares and deletes in one step",
        danger: Danger::Averted,
        checks: Checks::Nothing,
        end: &NONE_DELETED,
    },
];

#[derive(Debug)]
pub(super) struct GetThenDel;

#[async_trait(?Send)]
impl Scenario for GetThenDel {
    fn name(&self) -> &'static str {
        "get-then-del"
    }

    fn claim(&self) -> &'static str {
        "To look whether the lock is one's own (GET) and then to delete it (DEL) deletes somebody else's \
         lock, if the client is paused between the two; one script that does both doesn't."
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
        match world.danger {
            Danger::Strikes => release_late(Way::GetThenDel, &["worked", "compared"], recorder),
            Danger::Averted => release_late(Way::Scripts, &["worked"], recorder),
        }
        .await
    }
}

//! What a fence can't do: refuse 33 because of a 34 that the storage has never heard of.

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        storage::StorageStage,
        two_clients::{Course, HeldBack, VALUE_2, ending_with},
    },
};
use crate::record::{Checks, Danger, Outcome, Recorder, World};
use testbed::Databases;

const NOT_YET_CLAIMED: Course = Course {
    before_client_1_goes_on: &[],
    afterwards: &["read", "lease-checked", "written", "released"],
};
const CLAIMED: Course = Course {
    before_client_1_goes_on: &["read"],
    afterwards: &["lease-checked", "written", "released"],
};

const WORLDS: [World; 2] = [
    World {
        name: "before-claim",
        title: "BEFORE 34 claims: the storage checks tokens, and has never heard of 34",
        danger: Danger::Strikes,
        checks: Checks::Tokens,
        end: &ending_with(VALUE_2, 34, [0, 0, 0]),
    },
    World {
        name: "after-claim",
        title: "AFTER 34 has claimed: the storage checks tokens, and has heard of 34",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &ending_with(VALUE_2, 34, [0, 1, 0]),
    },
];

#[derive(Debug)]
pub(super) struct NeverSaw34;

#[async_trait(?Send)]
impl Scenario for NeverSaw34 {
    fn name(&self) -> &'static str {
        "never-saw-34"
    }

    fn claim(&self) -> &'static str {
        "A storage that has never heard of token 34 accepts 33, though its lease is over, and rightly: \
         nothing is overwritten. From the moment that 34 claims, 33 is refused."
    }

    fn worlds(&self) -> &'static [World] {
        &WORLDS
    }

    async fn play(
        &self,
        world: &World,
        _: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let course = match world.danger {
            Danger::Strikes => NOT_YET_CLAIMED,
            Danger::Averted => CLAIMED,
        };
        let stage = StorageStage::start(world.checks, recorder).await?;
        stage.play(course, HeldBack::ByPause, recorder).await
    }
}

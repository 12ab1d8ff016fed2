//! The classic (Kleppmann, "How to do distributed locking", 2016): a client is paused past its
//! lease, another one takes the lock and writes, and the first wakes up and writes too.

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        storage::{StorageStage, VALUE_1, VALUE_2},
        two_clients::{HeldBack, OVERTAKEN, ending_with},
    },
};
use crate::{
    record::{Checks, Danger, Outcome, Recorder, World},
    servers::Shared,
};

const WORLDS: [World; 2] = [
    World {
        name: "unfenced",
        title: "WITHOUT the fence: the storage accepts every write",
        danger: Danger::Strikes,
        checks: Checks::Nothing,
        end: &ending_with(VALUE_1, 33, [1, 0, 1]),
    },
    World {
        name: "fenced",
        title: "WITH the fence: the storage checks each write's token",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &ending_with(VALUE_2, 34, [0, 1, 0]),
    },
];

#[derive(Debug)]
pub(super) struct Token33And34;

#[async_trait(?Send)]
impl Scenario for Token33And34 {
    fn name(&self) -> &'static str {
        "token-33-34"
    }

    fn claim(&self) -> &'static str {
        "A client that was paused past its lease overwrites newer data; a storage that checks tokens \
         refuses it."
    }

    fn worlds(&self) -> &'static [World] {
        &WORLDS
    }

    async fn play(
        &self,
        world: &World,
        _: &mut Shared,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let stage = StorageStage::start(world.checks, recorder).await?;
        stage.play(OVERTAKEN, HeldBack::ByPause, recorder).await
    }
}

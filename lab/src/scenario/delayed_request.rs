//! Nobody is paused: client 1 sends its write in time, and the network delivers it late.

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        storage::{StorageStage, VALUE_1, VALUE_2},
        two_clients::{HeldBack, OVERTAKEN, ending_with},
    },
};
use crate::{
    record::{Actor, Checks, Danger, Outcome, Recorder, World},
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
pub(super) struct DelayedRequest;

#[async_trait(?Send)]
impl Scenario for DelayedRequest {
    fn name(&self) -> &'static str {
        "delayed-request"
    }

    fn claim(&self) -> &'static str {
        "A client that never paused, and sent its write in time, overwrites newer data if the network \
         delivers it late; a storage that checks tokens refuses it."
    }

    fn worlds(&self) -> &'static [World] {
        &WORLDS
    }

    fn lanes(&self) -> &'static [Actor] {
        &[Actor::Client1, Actor::Network, Actor::Redis, Actor::Client2, Actor::Storage]
    }

    async fn play(
        &self,
        world: &World,
        _: &mut Shared,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let stage = StorageStage::start(world.checks, recorder).await?;
        let network = stage.network().await?;
        stage.play(OVERTAKEN, HeldBack::ByNetwork(&network), recorder).await
    }
}

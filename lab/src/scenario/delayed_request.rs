//! Nobody is paused: client 1 sends its write in time, and the network delivers it late.

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        storage::{CHECKED_OR_NOT, StorageStage},
        two_clients::{HeldBack, OVERTAKEN},
    },
};
use crate::record::{Actor, Outcome, Recorder, World};
use testbed::Databases;

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
        &CHECKED_OR_NOT
    }

    fn lanes(&self) -> &'static [Actor] {
        &[Actor::Client1, Actor::Network, Actor::Redis, Actor::Client2, Actor::Storage]
    }

    async fn play(
        &self,
        world: &World,
        _: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let stage = StorageStage::start(world.checks, recorder).await?;
        let network = stage.network().await?;
        stage.play(OVERTAKEN, HeldBack::ByNetwork(&network), recorder).await
    }
}

//! The classic (Kleppmann, "How to do distributed locking", 2016): a client is paused past its
//! lease, another one takes the lock and writes, and the first wakes up and writes too.

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        storage::{CHECKED_OR_NOT, StorageStage},
        two_clients::{HeldBack, OVERTAKEN},
    },
};
use crate::record::{Outcome, Recorder, World};
use testbed::Databases;

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
        &CHECKED_OR_NOT
    }

    async fn play(
        &self,
        world: &World,
        _: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let stage = StorageStage::start(world.checks, recorder).await?;
        stage.play(OVERTAKEN, HeldBack::ByPause, recorder).await
    }
}

//! The classic (Kleppmann, "How to do distributed locking", 2016): a client is paused past its
//! lease, another one takes the lock and writes, and the first wakes up and writes too.

use async_trait::async_trait;

use super::{
    End, REFUSED, Scenario,
    storage::{StorageStage, VALUE_1, VALUE_2},
    two_clients::OVERTAKEN,
};
use crate::record::{Outcome, Recorder, World};

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

    fn worlds(&self) -> [&'static str; 2] {
        [
            "WITHOUT the fence: the storage accepts every write",
            "WITH the fence: the storage checks each write's token",
        ]
    }

    fn ends(&self) -> [End; 2] {
        let overwritten = Outcome {
            stale_writes_accepted: 1,
            updates_lost: 1,
            ..Outcome::ending_with(VALUE_1, 33)
        };
        let protected = Outcome { stale_writes_refused: 1, ..Outcome::ending_with(VALUE_2, 34) };
        [End::with([0, 0], overwritten), End::with([REFUSED, 0], protected)]
    }

    async fn play(&self, world: World, recorder: &mut Recorder) -> anyhow::Result<End> {
        let enforcement = match world {
            World::Unfenced => "off",
            World::Fenced => "enforce",
        };
        let stage = StorageStage::start(world, enforcement, recorder).await?;
        stage.play(OVERTAKEN, recorder).await
    }
}

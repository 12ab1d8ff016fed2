//! The classic (Kleppmann, "How to do distributed locking", 2016): a client is paused past its
//! lease, another one takes the lock and writes, and the first wakes up and writes too.

use async_trait::async_trait;

use super::{
    REFUSED, Scenario,
    storage::{StorageStage, VALUE_1, VALUE_2},
    two_clients::{self, Ends, OVERTAKEN},
};
use crate::record::{Outcome, Outcomes, Recorder, World};

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

    async fn run(&self, recorder: &mut Recorder) -> anyhow::Result<(Outcomes, bool)> {
        let (unfenced_ends, unfenced) = play(World::Unfenced, "off", recorder).await?;
        let (fenced_ends, fenced) = play(World::Fenced, "enforce", recorder).await?;
        let overwritten = Outcome {
            stale_writes_accepted: 1,
            updates_lost: 1,
            ..Outcome::ending_with(VALUE_1, 33)
        };
        let protected = Outcome { stale_writes_refused: 1, ..Outcome::ending_with(VALUE_2, 34) };
        let holds = (unfenced_ends, &unfenced) == (Ends::with([0, 0]), &overwritten)
            && (fenced_ends, &fenced) == (Ends::with([REFUSED, 0]), &protected);
        Ok((Outcomes { fenced, unfenced }, holds))
    }
}

async fn play(
    world: World,
    enforcement: &str,
    recorder: &mut Recorder,
) -> anyhow::Result<(Ends, Outcome)> {
    let stage = StorageStage::start(world, enforcement, recorder).await?;
    let client = |actor| stage.client(actor);
    let ends = two_clients::play(world, OVERTAKEN, stage.lock(), client, recorder).await?;
    Ok((ends, stage.outcome(recorder).await?))
}

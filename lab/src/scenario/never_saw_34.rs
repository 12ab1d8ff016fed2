//! What a fence can't do: refuse 33 because of a 34 that the storage has never heard of.

use async_trait::async_trait;

use super::{
    REFUSED, Scenario,
    storage::{StorageStage, VALUE_2},
    two_clients::{self, Course, Ends},
};
use crate::record::{Outcome, Outcomes, Recorder, World};

const NOT_YET_CLAIMED: Course = Course {
    before_client_1_wakes_up: &[],
    afterwards: &["read", "lease-checked", "written", "released"],
};
const CLAIMED: Course = Course {
    before_client_1_wakes_up: &["read"],
    afterwards: &["lease-checked", "written", "released"],
};

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

    fn worlds(&self) -> [&'static str; 2] {
        [
            "BEFORE 34 claims: the storage checks tokens, and has never heard of 34",
            "AFTER 34 has claimed: the storage checks tokens, and has heard of 34",
        ]
    }

    async fn run(&self, recorder: &mut Recorder) -> anyhow::Result<(Outcomes, bool)> {
        let (unfenced_ends, unfenced) = play(World::Unfenced, NOT_YET_CLAIMED, recorder).await?;
        let (fenced_ends, fenced) = play(World::Fenced, CLAIMED, recorder).await?;
        let both_written = Outcome::ending_with(VALUE_2, 34);
        let one_refused = Outcome { stale_writes_refused: 1, ..Outcome::ending_with(VALUE_2, 34) };
        let holds = (unfenced_ends, &unfenced) == (Ends::with([0, 0]), &both_written)
            && (fenced_ends, &fenced) == (Ends::with([REFUSED, 0]), &one_refused);
        Ok((Outcomes { fenced, unfenced }, holds))
    }
}

async fn play(
    world: World,
    course: Course,
    recorder: &mut Recorder,
) -> anyhow::Result<(Ends, Outcome)> {
    let stage = StorageStage::start(world, "enforce", recorder).await?;
    let client = |actor| stage.client(actor);
    let ends = two_clients::play(world, course, stage.lock(), client, recorder).await?;
    Ok((ends, stage.outcome(recorder).await?))
}

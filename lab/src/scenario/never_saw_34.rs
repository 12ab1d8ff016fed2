//! What a fence can't do: refuse 33 because of a 34 that the storage has never heard of.

use async_trait::async_trait;

use super::{
    End, REFUSED, Scenario,
    storage::{StorageStage, VALUE_2},
    two_clients::Course,
};
use crate::record::{Outcome, Recorder, World};

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

    fn ends(&self) -> [End; 2] {
        let both_written = Outcome::ending_with(VALUE_2, 34);
        let one_refused = Outcome { stale_writes_refused: 1, ..both_written.clone() };
        [End::with([0, 0], both_written), End::with([REFUSED, 0], one_refused)]
    }

    async fn play(&self, world: World, recorder: &mut Recorder) -> anyhow::Result<End> {
        let course = match world {
            World::Unfenced => NOT_YET_CLAIMED,
            World::Fenced => CLAIMED,
        };
        let stage = StorageStage::start(world, "enforce", recorder).await?;
        stage.play(course, recorder).await
    }
}

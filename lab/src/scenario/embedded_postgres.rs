//! Token 33 against token 34 with no storage server: the clients write straight into a table of
//! PostgreSQL, which checks the tokens itself.

use async_trait::async_trait;

use super::{End, REFUSED, Scenario, shelf::ShelfStage, two_clients::OVERTAKEN};
use crate::{
    record::{Outcome, Recorder, World},
    shelf::Guard,
};

const VALUE_1: &str = "by client 1";
const VALUE_2: &str = "by client 2";

#[derive(Debug)]
pub(super) struct EmbeddedPostgres;

#[async_trait(?Send)]
impl Scenario for EmbeddedPostgres {
    fn name(&self) -> &'static str {
        "embedded-postgres"
    }

    fn claim(&self) -> &'static str {
        "Your own PostgreSQL can do it without a storage server: a protected table refuses the client \
         that was paused past its lease, which would overwrite newer data."
    }

    fn worlds(&self) -> [&'static str; 2] {
        [
            "WITHOUT the fence: the table takes every write",
            "WITH the fence: the table is protected, and the clients present their tokens",
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
        let mut table = ShelfStage::start(world, "invoice-7", "empty", recorder).await?;
        let guard = match world {
            World::Unfenced => Guard::None,
            World::Fenced => {
                table.protect().await?;
                Guard::Present
            }
        };
        table.play(OVERTAKEN, guard, [["--write", VALUE_1], ["--write", VALUE_2]], recorder).await
    }
}

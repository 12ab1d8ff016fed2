//! Token 33 against token 34 with no storage server: the clients write straight into a table of
//! PostgreSQL, which checks the tokens itself.

use async_trait::async_trait;

use super::{
    REFUSED, Scenario,
    shelf::ShelfStage,
    two_clients::{self, Ends, OVERTAKEN},
};
use crate::{
    record::{Actor, Outcome, Outcomes, Recorder, World},
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

    async fn run(&self, recorder: &mut Recorder) -> anyhow::Result<(Outcomes, bool)> {
        let (unfenced_ends, unfenced) = play(World::Unfenced, Guard::None, recorder).await?;
        let (fenced_ends, fenced) = play(World::Fenced, Guard::Present, recorder).await?;
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
    guard: Guard,
    recorder: &mut Recorder,
) -> anyhow::Result<(Ends, Outcome)> {
    let mut table = ShelfStage::start(world, "invoice-7", "empty", recorder).await?;
    if guard != Guard::None {
        table.protect().await?;
    }
    let client = |actor| {
        let value = if actor == Actor::Client1 { VALUE_1 } else { VALUE_2 };
        table.client(actor, guard, ["--write", value])
    };
    let ends = two_clients::play(world, OVERTAKEN, table.lock(), client, recorder).await?;
    Ok((ends, table.outcome(recorder).await?))
}

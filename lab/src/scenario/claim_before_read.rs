//! Checking the tokens of writes is not enough: client 2 has the higher token, but the storage first
//! hears of it with client 2's write, and client 1 comes in between.

use async_trait::async_trait;

use super::{
    REFUSED, Scenario,
    shelf::ShelfStage,
    two_clients::{self, Course, Ends},
};
use crate::{
    record::{Actor, Outcome, Outcomes, Recorder, World},
    shelf::Guard,
};

/// Client 1 wakes up when client 2 has read, and not yet written.
const IN_BETWEEN: Course = Course {
    before_client_1_wakes_up: &["read", "lease-checked"],
    afterwards: &["written", "released"],
};

#[derive(Debug)]
pub(super) struct ClaimBeforeRead;

#[async_trait(?Send)]
impl Scenario for ClaimBeforeRead {
    fn name(&self) -> &'static str {
        "claim-before-read"
    }

    fn claim(&self) -> &'static str {
        "A storage that checks the token of every write loses an update all the same, if clients read \
         without claiming; if they claim first, it loses none."
    }

    fn worlds(&self) -> [&'static str; 2] {
        [
            "WITHOUT fenced reads: the table checks each write's token, and reads claim nothing",
            "WITH fenced reads: the clients claim before they read",
        ]
    }

    async fn run(&self, recorder: &mut Recorder) -> anyhow::Result<(Outcomes, bool)> {
        let (unfenced_ends, unfenced) = play(World::Unfenced, Guard::Present, recorder).await?;
        let (fenced_ends, fenced) = play(World::Fenced, Guard::Claim, recorder).await?;
        let lost = Outcome { updates_lost: 1, ..Outcome::ending_with("2", 34) };
        let none_lost = Outcome { stale_writes_refused: 1, ..Outcome::ending_with("2", 34) };
        let holds = (unfenced_ends, &unfenced) == (Ends::with([0, 0]), &lost)
            && (fenced_ends, &fenced) == (Ends::with([REFUSED, 0]), &none_lost);
        Ok((Outcomes { fenced, unfenced }, holds))
    }
}

async fn play(
    world: World,
    guard: Guard,
    recorder: &mut Recorder,
) -> anyhow::Result<(Ends, Outcome)> {
    let mut stock = ShelfStage::start(world, "stock", "10", recorder).await?;
    stock.protect().await?;
    let client = |actor| {
        let order = if actor == Actor::Client1 { "5" } else { "8" };
        stock.client(actor, guard, ["--sell", order])
    };
    let ends = two_clients::play(world, IN_BETWEEN, stock.lock(), client, recorder).await?;
    Ok((ends, stock.outcome(recorder).await?))
}

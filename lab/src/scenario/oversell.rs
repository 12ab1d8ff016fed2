//! A stock of 10, and orders of 5 and 8. The client with the first order is paused between reading
//! the stock and writing what is left.

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

#[derive(Debug)]
pub(super) struct Oversell;

#[async_trait(?Send)]
impl Scenario for Oversell {
    fn name(&self) -> &'static str {
        "oversell"
    }

    fn claim(&self) -> &'static str {
        "Of a stock of 10, two clients sell 5 and 8, as one of them is paused between reading and \
         writing; if each claims before it reads, only one of them can."
    }

    fn worlds(&self) -> [&'static str; 2] {
        [
            "WITHOUT the fence: the table takes every write",
            "WITH the fence: the clients claim before they read, and the table is protected",
        ]
    }

    async fn run(&self, recorder: &mut Recorder) -> anyhow::Result<(Outcomes, bool)> {
        let (unfenced_ends, unfenced) = play(World::Unfenced, Guard::None, recorder).await?;
        let (fenced_ends, fenced) = play(World::Fenced, Guard::Claim, recorder).await?;
        let oversold =
            Outcome { stale_writes_accepted: 1, updates_lost: 1, ..Outcome::ending_with("5", 33) };
        let sold_once = Outcome { stale_writes_refused: 1, ..Outcome::ending_with("2", 34) };
        let holds = (unfenced_ends, &unfenced) == (Ends::with([0, 0]), &oversold)
            && (fenced_ends, &fenced) == (Ends::with([REFUSED, 0]), &sold_once);
        Ok((Outcomes { fenced, unfenced }, holds))
    }
}

async fn play(
    world: World,
    guard: Guard,
    recorder: &mut Recorder,
) -> anyhow::Result<(Ends, Outcome)> {
    let mut stock = ShelfStage::start(world, "stock", "10", recorder).await?;
    if guard != Guard::None {
        stock.protect().await?;
    }
    let client = |actor| {
        let order = if actor == Actor::Client1 { "5" } else { "8" };
        stock.client(actor, guard, ["--sell", order])
    };
    let ends = two_clients::play(world, OVERTAKEN, stock.lock(), client, recorder).await?;
    Ok((ends, stock.outcome(recorder).await?))
}

//! A stock of 10, and orders of 5 and 8. The client with the first order is paused between reading
//! the stock and writing what is left.

use async_trait::async_trait;

use super::{End, REFUSED, Scenario, shelf::ShelfStage, two_clients::OVERTAKEN};
use crate::{
    record::{Outcome, Recorder, World},
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
        "Of a stock of 10, client 1 sells 5 and client 2 sells 8, as client 1 is paused between reading \
         and writing: 13 are sold, and 5 seem to be left. If each claims before it reads, only client 2 \
         can sell."
    }

    fn worlds(&self) -> [&'static str; 2] {
        [
            "WITHOUT the fence: the table takes every write",
            "WITH the fence: the clients claim before they read, and the table is protected",
        ]
    }

    fn ends(&self) -> [End; 2] {
        let oversold =
            Outcome { stale_writes_accepted: 1, updates_lost: 1, ..Outcome::ending_with("5", 33) };
        let sold_once = Outcome { stale_writes_refused: 1, ..Outcome::ending_with("2", 34) };
        [End::with([0, 0], oversold), End::with([REFUSED, 0], sold_once)]
    }

    async fn play(&self, world: World, recorder: &mut Recorder) -> anyhow::Result<End> {
        let mut stock = ShelfStage::start(world, "stock", "10", recorder).await?;
        let guard = match world {
            World::Unfenced => Guard::None,
            World::Fenced => {
                stock.protect().await?;
                Guard::Claim
            }
        };
        stock.play(OVERTAKEN, guard, [["--sell", "5"], ["--sell", "8"]], recorder).await
    }
}

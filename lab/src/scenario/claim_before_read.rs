//! Checking the tokens of writes is not enough: client 2 has the higher token, but the storage first
//! hears of it with client 2's write, and client 1 comes in between.

use async_trait::async_trait;

use super::{End, REFUSED, Scenario, shelf::ShelfStage, two_clients::Course};
use crate::{
    record::{Outcome, Recorder, World},
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

    fn ends(&self) -> [End; 2] {
        let lost = Outcome { updates_lost: 1, ..Outcome::ending_with("2", 34) };
        let none_lost = Outcome { stale_writes_refused: 1, ..Outcome::ending_with("2", 34) };
        [End::with([0, 0], lost), End::with([REFUSED, 0], none_lost)]
    }

    async fn play(&self, world: World, recorder: &mut Recorder) -> anyhow::Result<End> {
        let mut stock = ShelfStage::start(world, "stock", "10", recorder).await?;
        stock.protect().await?;
        let guard = match world {
            World::Unfenced => Guard::Present,
            World::Fenced => Guard::Claim,
        };
        stock.play(IN_BETWEEN, guard, [["--sell", "5"], ["--sell", "8"]], recorder).await
    }
}

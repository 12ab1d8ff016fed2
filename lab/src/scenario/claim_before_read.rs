//! Checking the tokens of writes is not enough: client 2 has the higher token, but the storage first
//! hears of it with client 2's write, and client 1 comes in between.

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        shelf::ShelfStage,
        two_clients::{Course, ending_with},
    },
};
use crate::{
    client::shelf::Guard,
    record::{Checks, Danger, Outcome, Recorder, World},
};
use testbed::Databases;

/// Client 1 wakes up when client 2 has read, and not yet written.
const IN_BETWEEN: Course = Course {
    before_client_1_goes_on: &["read", "lease-checked"],
    afterwards: &["written", "released"],
};

const WORLDS: [World; 2] = [
    World {
        name: "writes-only",
        title: "WITHOUT fenced reads: the table checks each write's token, and reads claim nothing",
        danger: Danger::Strikes,
        checks: Checks::Tokens,
        end: &ending_with("2", 34, [0, 0, 1]),
    },
    World {
        name: "fenced-reads",
        title: "WITH fenced reads: the clients claim before they read",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &ending_with("2", 34, [0, 1, 0]),
    },
];

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

    fn worlds(&self) -> &'static [World] {
        &WORLDS
    }

    async fn play(
        &self,
        world: &World,
        databases: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let mut stock = ShelfStage::start("stock", "10", world.checks, databases, recorder).await?;
        let guard = match world.danger {
            Danger::Strikes => Guard::Present,
            Danger::Averted => Guard::Claim,
        };
        stock.play(IN_BETWEEN, guard, [["--sell", "5"], ["--sell", "8"]], recorder).await
    }
}

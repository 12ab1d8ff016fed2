//! A stock of 10, and orders of 5 and 8. The client with the first order is paused between reading
//! the stock and writing what is left.

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        shelf::ShelfStage,
        two_clients::{OVERTAKEN, ending_with},
    },
};
use crate::{
    client::shelf::Guard,
    record::{Checks, Danger, Outcome, Recorder, World},
};
use testbed::Databases;

const WORLDS: [World; 2] = [
    World {
        name: "unfenced",
        title: "WITHOUT the fence: the table takes every write",
        danger: Danger::Strikes,
        checks: Checks::Nothing,
        end: &ending_with("5", 33, [1, 0, 1]),
    },
    World {
        name: "fenced",
        title: "WITH the fence: the clients claim before they read, and the table is protected",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &ending_with("2", 34, [0, 1, 0]),
    },
];

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
            Danger::Strikes => Guard::None,
            Danger::Averted => Guard::Claim,
        };
        stock.play(OVERTAKEN, guard, [["--sell", "5"], ["--sell", "8"]], recorder).await
    }
}

//! Token 33 against token 34 with no storage server: the clients write straight into a table of
//! PostgreSQL, which checks the tokens itself.

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        shelf::ShelfStage,
        two_clients::{OVERTAKEN, VALUE_1, VALUE_2, ending_with},
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
        end: &ending_with(VALUE_1, 33, [1, 0, 1]),
    },
    World {
        name: "fenced",
        title: "WITH the fence: the table is protected, and the clients present their tokens",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &ending_with(VALUE_2, 34, [0, 1, 0]),
    },
];

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

    fn worlds(&self) -> &'static [World] {
        &WORLDS
    }

    async fn play(
        &self,
        world: &World,
        databases: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let mut table =
            ShelfStage::start("invoice-7", "empty", world.checks, databases, recorder).await?;
        let guard = match world.danger {
            Danger::Strikes => Guard::None,
            Danger::Averted => Guard::Present,
        };
        table.play(OVERTAKEN, guard, [["--write", VALUE_1], ["--write", VALUE_2]], recorder).await
    }
}

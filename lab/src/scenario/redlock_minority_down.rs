//! Of five nodes, two are dead, and then, while a client has the lock, other three.

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        lock::LONG_TTL,
        nodes::Nodes,
        two_clients::{VALUE_2, updates_lost},
        two_holders::{Clients, ENDS, TwoHolders, finish},
        workplace::most_at_once,
    },
};
use crate::{
    client::naive_redlock::{NO_MAJORITY, Way},
    record::{Actor, Checks, Danger, Expected, Outcome, Recorder, World},
};
use testbed::{Databases, NodeKind};

const WORLDS: [World; 2] = [
    World {
        name: "majority-of-answers",
        title: "OF THOSE THAT ANSWER: a client takes the lock if a majority of these gives it",
        danger: Danger::Strikes,
        checks: Checks::Nothing,
        end: &ending_with([2, 2, 1]),
    },
    World {
        name: "majority-of-all",
        title: "OF ALL: the lock client takes it if a majority of all nodes gives it",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &ending_with([1, 0, 0]),
    },
];

const fn ending_with([holders, taken, lost]: [u64; 3]) -> [(&'static str, Expected); 4] {
    [
        ("value", Expected::Text(VALUE_2)),
        ("holders_at_once", Expected::Number(holders)),
        ("taken_by_a_minority", Expected::Number(taken)),
        ("updates_lost", Expected::Number(lost)),
    ]
}

/// The exit code of the lock client if there is no majority.
const UNAVAILABLE: u8 = 69;

#[derive(Debug)]
pub(super) struct RedlockMinorityDown;

#[async_trait(?Send)]
impl Scenario for RedlockMinorityDown {
    fn name(&self) -> &'static str {
        "redlock-minority-down"
    }

    fn claim(&self) -> &'static str {
        "With two nodes of five dead, Redlock goes on. With three dead, a client that counts only those \
         that answer takes a lock that another has, and overwrites what it has not seen; one that \
         counts all is told so, and leaves nothing behind."
    }

    fn worlds(&self) -> &'static [World] {
        &WORLDS
    }

    fn lanes(&self) -> &'static [Actor] {
        &[Actor::Client1, Actor::Nodes, Actor::Client2, Actor::Storage]
    }

    async fn play(
        &self,
        world: &World,
        _: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let clients = match world.danger {
            Danger::Strikes => Clients::Naive(Way::MajorityOfAnswers),
            Danger::Averted => Clients::Put,
        };
        let stage = TwoHolders::start(world.checks, clients).await?;
        let mut nodes = Nodes::start(&[NodeKind::DURABLE; 5]).await?;
        if world.checks == Checks::Tokens {
            nodes.hand_out_tokens(LONG_TTL, recorder).await?;
        }
        let urls = nodes.urls();
        nodes.kill(3..5, recorder)?;
        let client_1 = stage.about_to_write(Actor::Client1, &urls, recorder).await?;
        nodes.restart(3..5, recorder).await?;
        nodes.kill(0..3, recorder)?;

        let beside = match world.danger {
            Danger::Strikes => Some(stage.about_to_write(Actor::Client2, &urls, recorder).await?),
            Danger::Averted => {
                let mut client_2 = stage.client(Actor::Client2, &urls)?;
                let why = "no majority of the 5 nodes has voted";
                client_2.goes_away(UNAVAILABLE, why, NO_MAJORITY, recorder).await?;
                None
            }
        };
        let taken = nodes.taken_at(3..5, recorder).await?;
        nodes.restart(0..3, recorder).await?;

        finish(client_1, recorder).await?;
        let client_2 = match beside {
            Some(client_2) => client_2,
            None => stage.about_to_write(Actor::Client2, &urls, recorder).await?,
        };
        finish(client_2, recorder).await?;
        Ok(Outcome::default()
            .with("value", stage.kept().await?.value)
            .with("holders_at_once", most_at_once(recorder, &ENDS))
            .with("taken_by_a_minority", taken)
            .with("updates_lost", updates_lost(recorder.events())))
    }
}

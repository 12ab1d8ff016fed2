//! The lock service is killed and started again, and has kept nothing: no lock, and no counter.

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        lock::{Counter, Lock},
        two_holders::{Clients, HEALED, KEPT_GROWING, OVERWRITTEN, RESOURCE, TwoHolders},
    },
};
use crate::{
    client::writer::Offer,
    record::{Actor, Checks, Danger, Outcome, Recorder, World},
};
use testbed::Databases;

const WORLDS: [World; 3] = [
    World {
        name: "from-0",
        title: "FROM 0, tokens alone: the counter starts at 0, and the storage is not told whose a \
                token is",
        danger: Danger::Strikes,
        checks: Checks::Tokens,
        end: &OVERWRITTEN,
    },
    World {
        name: "from-0-reissued",
        title: "FROM 0, with holders: the storage binds each token to its holder, and who is refused \
                before it has read takes a higher token",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &HEALED,
    },
    World {
        name: "from-the-clock",
        title: "FROM THE CLOCK: a counter that is missing starts at the time in milliseconds",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &KEPT_GROWING,
    },
];

#[derive(Debug)]
pub(super) struct CounterLost;

#[async_trait(?Send)]
impl Scenario for CounterLost {
    fn name(&self) -> &'static str {
        "counter-lost"
    }

    fn claim(&self) -> &'static str {
        "A Redis that restarts without what it had gives a token again if its counter starts at 0, and an \
         update is lost; binding tokens to holders averts it, and so does a counter that starts at the \
         clock."
    }

    fn worlds(&self) -> &'static [World] {
        &WORLDS
    }

    async fn play(
        &self,
        world: &World,
        _: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let (offer, counter) = match world.name {
            "from-0" => (Offer::Token, Counter::From(0)),
            "from-0-reissued" => (Offer::TokenAndHolder, Counter::From(0)),
            _ => (Offer::TokenAndHolder, Counter::FromTheClock),
        };
        let stage = TwoHolders::start(world.checks, Clients::Offering(offer)).await?;
        let mut lock = Lock::start_counting(RESOURCE, counter, recorder).await?;
        let client_1 = stage.about_to_write(Actor::Client1, &[lock.url()], recorder).await?;
        lock.restart(recorder).await?;
        lock.begin(counter, recorder).await?;
        let client_2 = stage.about_to_write(Actor::Client2, &[lock.url()], recorder).await?;
        stage.write([client_1, client_2], recorder).await
    }
}

//! The lock service fails over to a replica that had not heard of the last grant, and gives its token
//! again. The old primary is still there, as is the client that got the token from it.

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        lock::Lock,
        two_holders::{Clients, HEALED, OVERWRITTEN, RESOURCE, TwoHolders},
    },
};
use crate::{
    client::writer::Offer,
    record::{Actor, Checks, Danger, Outcome, Recorder, World},
};
use testbed::{Databases, Redis};

const WORLDS: [World; 2] = [
    World {
        name: "token-alone",
        title: "TOKENS ALONE: the storage checks tokens, and is not told whose they are",
        danger: Danger::Strikes,
        checks: Checks::Tokens,
        end: &OVERWRITTEN,
    },
    World {
        name: "token-and-holder",
        title: "TOKENS AND HOLDERS: the storage binds each token to its holder",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &HEALED,
    },
];

#[derive(Debug)]
pub(super) struct Failover;

#[async_trait(?Send)]
impl Scenario for Failover {
    fn name(&self) -> &'static str {
        "failover"
    }

    fn claim(&self) -> &'static str {
        "A failover to a replica that was cut off gives one token to two clients, and one overwrites what \
         the other wrote; if the storage knows whose a token is, it refuses the second, who goes on with \
         a higher token as it has read nothing yet, and the first loses its lease."
    }

    fn worlds(&self) -> &'static [World] {
        &WORLDS
    }

    fn lanes(&self) -> &'static [Actor] {
        &[Actor::Client1, Actor::Redis, Actor::Replica, Actor::Client2, Actor::Storage]
    }

    async fn play(
        &self,
        world: &World,
        _: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let offer = match world.danger {
            Danger::Strikes => Offer::Token,
            Danger::Averted => Offer::TokenAndHolder,
        };
        let stage = TwoHolders::start(world.checks, Clients::Offering(offer)).await?;
        let primary = Lock::start(RESOURCE, recorder).await?;
        let replica = Redis::replica_of(primary.redis()).await?;
        recorder.note(Actor::Replica, "in-step", None);
        // A replica that is stopped loses nothing: what it has not read waits in its socket.
        replica.cut();
        recorder.note(Actor::Replica, "cut-off", None);
        let client_1 = stage.about_to_write(Actor::Client1, &[primary.url()], recorder).await?;

        replica.promote().await?;
        recorder.note(Actor::Replica, "promoted", None);
        let client_2 =
            stage.about_to_write(Actor::Client2, &[replica.redis().url()], recorder).await?;
        stage.write([client_1, client_2], recorder).await
    }
}

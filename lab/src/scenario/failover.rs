//! The lock service fails over to a replica that had missed the last grant, and issues its token
//! again. The old primary is still there, and so is the client that acquired the token from it.

use testbed::Redis;

use super::{
    definition::Scenario,
    stage::{
        issued_twice::{self, OVERWRITTEN, REISSUED},
        redis_lock::{LONG_TTL, RedisLock},
        scene::Scene,
        stale_writes::{VALUE_1, VALUE_2},
        storage::Storage,
    },
};
use crate::{
    client::setup::{LockSetup, Offer},
    record::{Actor, Checks, Danger, EventKind, Outcome, World},
};

const INVOICE: &str = "invoice-7";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "failover",
    title: "a Redis that lags is promoted",
    needs: "",
    seconds: 2,
    claim: "A failover to a replica that was cut off issues one token to two clients, and one \
            overwrites what the other wrote. A storage that binds tokens to holders rejects the \
            second client, which takes a higher token because it has read nothing yet, and the \
            first client loses its lease.",
    worlds: &[
        World {
            name: "token-alone",
            title: "TOKENS ALONE: the storage checks tokens, and does not know whose they are",
            danger: Danger::Strikes,
            checks: Checks::Tokens,
            end: &OVERWRITTEN,
        },
        World {
            name: "token-and-holder",
            title: "TOKENS AND HOLDERS: the storage binds each token to its holder",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &REISSUED,
        },
    ],
    tracks: &[Actor::Client1, Actor::Redis, Actor::Replica, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let offer = match scene.world.danger {
        Danger::Strikes => Offer::Token,
        Danger::Averted => Offer::Reissued,
    };
    let storage = Storage::start(scene).await?;
    let primary = RedisLock::start(INVOICE, scene).await?;
    let replica = Redis::replica_of(primary.redis()).await?;
    scene.record(Actor::Replica, None, EventKind::InStep);

    // The replica is cut off, and misses the grant to client 1. (A replica that is merely stopped
    // loses nothing: what it has not read yet waits in its socket.)
    replica.cut();
    scene.record(Actor::Replica, None, EventKind::CutOff);
    let mut client_1 =
        scene.client(Actor::Client1, INVOICE, primary.setup(), storage.setup(offer))?;
    client_1.acquire_read_and_check(LONG_TTL).await?;

    // The replica is promoted, and grants the lock with the same token to client 2.
    replica.promote().await?;
    scene.record(Actor::Replica, None, EventKind::Promoted);
    let promoted = LockSetup::Redis(replica.redis().url());
    let mut client_2 = scene.client(Actor::Client2, INVOICE, promoted, storage.setup(offer))?;
    client_2.acquire_read_and_check(LONG_TTL).await?;

    client_1.write(VALUE_1).await?;
    client_1.release().await?;
    client_2.write(VALUE_2).await?;
    client_2.release().await?;
    Ok(issued_twice::outcome(&scene.recorder.events(), storage.stored(INVOICE).await?))
}

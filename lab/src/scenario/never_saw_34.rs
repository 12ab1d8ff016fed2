//! What a fence can't do: reject 33 because of a 34 that has not reached the storage yet.

use super::{
    definition::Scenario,
    stage::{
        client::write,
        redis_lock::{LONG_TTL, RedisLock, SHORT_TTL},
        scene::Scene,
        stale_writes::{self, VALUE_1, VALUE_2, ending_with},
        storage::Storage,
    },
};
use crate::{
    client::setup::Offer,
    record::{Actor, Checks, Danger, Outcome, World},
};

const INVOICE: &str = "invoice-7";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "never-saw-34",
    title: "what a fence can't do",
    needs: "",
    seconds: 4,
    claim: "A storage that has not seen token 34 yet accepts 33, although its lease is over, and \
            rightly: nothing is overwritten. As soon as 34 has claimed, 33 is rejected.",
    worlds: &[
        World {
            name: "before-claim",
            title: "BEFORE 34 claims: the storage checks tokens, and has never seen 34",
            danger: Danger::Strikes,
            checks: Checks::Tokens,
            end: &ending_with(VALUE_2, 34, [0, 0, 0]),
        },
        World {
            name: "after-claim",
            title: "AFTER 34 has claimed: the storage checks tokens, and has seen 34",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &ending_with(VALUE_2, 34, [0, 1, 0]),
        },
    ],
    tracks: &[Actor::Client1, Actor::Redis, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let lock = RedisLock::start(INVOICE, scene).await?;
    let storage = Storage::start(scene).await?;
    let client =
        |actor| scene.client(actor, INVOICE, lock.setup(), storage.setup(Offer::TokenAndHolder));

    // Client 1 is paused just before it writes with token 33.
    let mut client_1 = client(Actor::Client1)?;
    let token_33 = client_1.acquire_token(33, scene.ttl(SHORT_TTL)).await?;
    client_1.read().await?;
    client_1.check_lease().await?;
    client_1.pause().await?;
    client_1.send(&write(VALUE_1))?;
    lock.expires(Actor::Client1, token_33).await?;

    // Client 2 acquires the lock with token 34. In one world it has claimed before client 1 wakes
    // up.
    let mut client_2 = client(Actor::Client2)?;
    client_2.acquire_token(34, LONG_TTL).await?;
    if scene.world.danger == Danger::Averted {
        client_2.read().await?;
    }
    client_1.resume()?;
    client_1.finish_write().await?;
    client_1.release().await?;

    // Client 2 does the rest.
    if scene.world.danger == Danger::Strikes {
        client_2.read().await?;
    }
    client_2.check_lease().await?;
    client_2.write(VALUE_2).await?;
    client_2.release().await?;

    let stored = storage.stored(INVOICE).await?;
    Ok(stale_writes::outcome(&scene.recorder.events(), stored.value, stored.token))
}

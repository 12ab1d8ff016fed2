//! No client is paused: client 1 sends its write in time, and the network delivers it late.

use super::{
    definition::Scenario,
    stage::{
        client::write,
        redis_lock::{LONG_TTL, RedisLock, SHORT_TTL},
        scene::Scene,
        stale_writes::{self, VALUE_1, VALUE_2, WITHOUT_AND_WITH_THE_FENCE},
        storage::Storage,
    },
};
use crate::{
    client::setup::Offer,
    record::{Actor, Outcome},
};

const INVOICE: &str = "invoice-7";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "delayed-request",
    title: "late by the network, with no pause",
    needs: "",
    seconds: 3,
    claim: "A client that never paused, and sent its write in time, overwrites newer data if the \
            network delivers the write late; a storage that checks tokens rejects it.",
    worlds: &WITHOUT_AND_WITH_THE_FENCE,
    tracks: &[Actor::Client1, Actor::Network, Actor::Redis, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let lock = RedisLock::start(INVOICE, scene).await?;
    let storage = Storage::start(scene).await?;
    let network = storage.network(scene).await?;

    // Client 1 writes with token 33 while its lease is valid, but the network holds the write back.
    let through_network = network.setup(Offer::TokenAndHolder);
    let mut client_1 = scene.client(Actor::Client1, INVOICE, lock.setup(), through_network)?;
    let token_33 = client_1.acquire_token(33, scene.ttl(SHORT_TTL)).await?;
    client_1.read().await?;
    client_1.check_lease().await?;
    let hold = network.hold_write();
    client_1.send(&write(VALUE_1))?;
    let late_write = network.caught(hold, token_33).await?;
    lock.expires(Actor::Client1, token_33).await?;

    // Client 2 acquires the lock with token 34, and writes.
    let directly = storage.setup(Offer::TokenAndHolder);
    let mut client_2 = scene.client(Actor::Client2, INVOICE, lock.setup(), directly)?;
    client_2.acquire_token(34, LONG_TTL).await?;
    client_2.read().await?;
    client_2.check_lease().await?;
    client_2.write(VALUE_2).await?;
    client_2.release().await?;

    // The write with token 33 arrives. The storage accepts or rejects it.
    late_write.deliver();
    client_1.finish_write().await?;
    client_1.release().await?;

    let stored = storage.stored(INVOICE).await?;
    Ok(stale_writes::outcome(&scene.recorder.events(), stored.value, stored.token))
}

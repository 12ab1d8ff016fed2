//! The classic (Kleppmann, "How to do distributed locking", 2016): a client is paused past its
//! lease, another client acquires the lock and writes, and then the first one wakes up and writes.

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
    name: "token-33-34",
    title: "a late write: with a fence or without",
    needs: "",
    seconds: 4,
    claim: "A client that was paused past its lease overwrites newer data; a storage that checks \
            tokens rejects its write.",
    worlds: &WITHOUT_AND_WITH_THE_FENCE,
    tracks: &[Actor::Client1, Actor::Redis, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let lock = RedisLock::start(INVOICE, scene).await?;
    let storage = Storage::start(scene).await?;
    let client =
        |actor| scene.client(actor, INVOICE, lock.setup(), storage.setup(Offer::TokenAndHolder));

    // Client 1 acquires the lock with token 33, and is about to write.
    let mut client_1 = client(Actor::Client1)?;
    let token_33 = client_1.acquire_token(33, scene.ttl(SHORT_TTL)).await?;
    client_1.read().await?;
    client_1.check_lease().await?;

    // It is paused. The command to write is on its stdin: the write is all that it does next.
    client_1.pause().await?;
    client_1.send(&write(VALUE_1))?;
    lock.expires(Actor::Client1, token_33).await?;

    // Client 2 acquires the lock with token 34, and writes.
    let mut client_2 = client(Actor::Client2)?;
    client_2.acquire_token(34, LONG_TTL).await?;
    client_2.read().await?;
    client_2.check_lease().await?;
    client_2.write(VALUE_2).await?;
    client_2.release().await?;

    // Client 1 wakes up, and writes with token 33. The storage accepts or rejects that.
    client_1.resume()?;
    client_1.finish_write().await?;
    client_1.release().await?;

    let stored = storage.stored(INVOICE).await?;
    Ok(stale_writes::outcome(&scene.recorder.events(), stored.value, stored.token))
}

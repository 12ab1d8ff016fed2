//! A client of etcd is paused, and its lease expires. It trusts what it last knew, and writes.

use std::time::Duration;

use super::{
    definition::Scenario,
    stage::{
        client::write,
        etcd_lock::EtcdLock,
        redis_lock::LONG_TTL,
        scene::Scene,
        stale_writes::{self, VALUE_1, VALUE_2, ending_with_any_token},
        storage::Storage,
    },
};
use crate::{
    client::setup::Offer,
    record::{Actor, Checks, Danger, Outcome, World},
};

const INVOICE: &str = "invoice-7";
const LEASE: Duration = Duration::from_secs(2);

pub(super) const SCENARIO: Scenario = Scenario {
    name: "etcd-paused",
    title: "a pause past the lease",
    needs: "etcd",
    seconds: 10,
    claim: "A client whose lease in etcd expired while it was paused overwrites newer data, and \
            an acknowledged update is lost; a storage that checks the create revision as a token \
            rejects its write.",
    worlds: &[
        World {
            name: "unfenced",
            title: "WITHOUT the fence: the storage accepts every write",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &ending_with_any_token(VALUE_1, [1, 0, 1]),
        },
        World {
            name: "fenced",
            title: "WITH the fence: the storage checks the token of each write",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &ending_with_any_token(VALUE_2, [0, 1, 0]),
        },
    ],
    tracks: &[Actor::Client1, Actor::Etcd, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let lock = EtcdLock::start(INVOICE, scene).await?;
    let storage = Storage::start(scene).await?;
    let client =
        |actor| scene.client(actor, INVOICE, lock.setup(), storage.setup(Offer::TokenAndHolder));

    // Client 1 acquires the lock, and is about to write.
    let mut client_1 = client(Actor::Client1)?;
    client_1.acquire_read_and_check(scene.ttl(LEASE)).await?;

    // It is paused. The command to write is on its stdin: the write is all that it does next.
    client_1.pause().await?;
    client_1.send(&write(VALUE_1))?;
    lock.expires(Actor::Client1).await?;

    // Client 2 acquires the lock, and writes.
    let mut client_2 = client(Actor::Client2)?;
    client_2.acquire_read_and_check(LONG_TTL).await?;
    client_2.write(VALUE_2).await?;
    client_2.release().await?;

    // Client 1 wakes up, and writes. The storage accepts or rejects that.
    client_1.resume()?;
    client_1.finish_write().await?;
    client_1.release().await?;

    let stored = storage.stored(INVOICE).await?;
    Ok(stale_writes::outcome(&scene.recorder.events(), stored.value, stored.token))
}

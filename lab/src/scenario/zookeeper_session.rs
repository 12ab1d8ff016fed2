//! A client of ZooKeeper is paused, and its session expires. It trusts what it last knew, and writes.

use std::time::Duration;

use super::{
    definition::Scenario,
    stage::{
        client::write,
        redis_lock::LONG_TTL,
        scene::Scene,
        stale_writes::{self, VALUE_1, VALUE_2},
        storage::Storage,
        zookeeper_lock::ZooKeeperLock,
    },
};
use crate::{
    client::setup::Offer,
    record::{Actor, Checks, Danger, Expected, Outcome, World},
};

const INVOICE: &str = "invoice-7";
const SESSION: Duration = Duration::from_secs(2);

pub(super) const SCENARIO: Scenario = Scenario {
    name: "zookeeper-session",
    title: "a pause past the session",
    needs: "zookeeper",
    seconds: 10,
    claim: "A client whose session in ZooKeeper expired while it was paused overwrites newer data, \
            although nobody held the lock beside it; a storage that checks the czxid as a token \
            rejects its write.",
    worlds: &[
        World {
            name: "unfenced",
            title: "WITHOUT the fence: the storage accepts every write",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &ending_with(VALUE_1, [1, 0, 1]),
        },
        World {
            name: "fenced",
            title: "WITH the fence: the storage checks the token of each write",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &ending_with(VALUE_2, [0, 1, 0]),
        },
    ],
    tracks: &[Actor::Client1, Actor::ZooKeeper, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

/// The tokens are ZooKeeper's.
const fn ending_with(
    value: &'static str,
    [accepted, rejected, lost]: [u64; 3],
) -> [(&'static str, Expected); 4] {
    [
        ("value", Expected::Text(value)),
        ("stale_writes_accepted", Expected::Number(accepted)),
        ("stale_writes_rejected", Expected::Number(rejected)),
        ("updates_lost", Expected::Number(lost)),
    ]
}

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let lock = ZooKeeperLock::start(INVOICE, scene).await?;
    let storage = Storage::start(scene).await?;
    let client =
        |actor| scene.client(actor, INVOICE, lock.setup(), storage.setup(Offer::TokenAndHolder));

    // Client 1 acquires the lock, and is about to write.
    let mut client_1 = client(Actor::Client1)?;
    client_1.acquire_read_and_check(scene.ttl(SESSION)).await?;

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

//! A lock in a table, as it is often written: a row that can be inserted once.

use super::{
    definition::Scenario,
    stage::{
        client::write,
        findings::{count, updates_lost},
        redis_lock::{LONG_TTL, SHORT_TTL},
        scene::Scene,
        stale_writes::{VALUE_1, VALUE_2},
        table::Table,
        table_lock::TableLock,
    },
};
use crate::{
    client::{
        command::Terms,
        setup::{Expiry, Guard},
    },
    record::{Actor, Checks, Danger, EventKind, Expected, Outcome, World},
};

const SEAT: &str = "seat-12";
const UNIQUE_INDEX: &str = "unique-index";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "sql-unique-index",
    title: "a unique row as a lock",
    needs: "postgresql",
    seconds: 15,
    claim: "A lock that is a unique row blocks all others for ever if its owner dies; with an expiry, \
            a paused owner overwrites newer data; with a token too, it is rejected.",
    worlds: &[
        World {
            name: UNIQUE_INDEX,
            title: "UNIQUE INDEX: a client inserts the row, and deletes it",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &ending_with(0, 0),
        },
        World {
            name: "with-expiry",
            title: "WITH EXPIRY: a row that has expired may be taken over",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &ending_with(1, 1),
        },
        World {
            name: "with-tokens",
            title: "WITH TOKENS: each owner gets a higher one, and the table of the data checks it",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &ending_with(1, 0),
        },
    ],
    tracks: &[Actor::Client1, Actor::LockTable, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

const fn ending_with(acquired: u64, lost: u64) -> [(&'static str, Expected); 2] {
    [
        ("acquired_after_the_owner", Expected::Number(acquired)),
        ("updates_lost", Expected::Number(lost)),
    ]
}

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let table = Table::create(SEAT, "empty", scene).await?;
    let naive = |expiry| TableLock::create_naive(SEAT, &table, expiry, scene);
    let (lock, guard) = match (scene.world.danger, scene.world.name) {
        (Danger::Averted, _) => (TableLock::install(SEAT, &table, scene).await?, Guard::Present),
        (Danger::Strikes, UNIQUE_INDEX) => (naive(Expiry::None).await?, Guard::None),
        (Danger::Strikes, _) => (naive(Expiry::AfterTtl).await?, Guard::None),
    };
    let client = |actor| scene.client(actor, SEAT, lock.setup(), table.setup(guard));

    // Client 1 acquires the lock, and reads.
    let mut client_1 = client(Actor::Client1)?;
    let token = client_1.acquire(scene.ttl(SHORT_TTL)).await?;
    client_1.read().await?;
    let mut client_2 = client(Actor::Client2)?;
    if scene.world.name == UNIQUE_INDEX {
        // It dies. Client 2 waits for longer than the ttl, in vain.
        client_1.kill()?;
        let wait = scene.ttl(SHORT_TTL) + SHORT_TTL * 2;
        client_2.try_acquire(Terms::new(LONG_TTL).wait(wait)).await?;
    } else {
        // It is paused past its lease, just before it writes.
        client_1.pause().await?;
        client_1.send(&write(VALUE_1))?;
        lock.expires(Actor::Client1, token).await?;

        // Client 2 acquires the lock, and writes.
        client_2.acquire(LONG_TTL).await?;
        client_2.read().await?;
        client_2.write(VALUE_2).await?;
        client_2.release().await?;

        // Client 1 wakes up, and writes.
        client_1.resume()?;
        client_1.finish_write().await?;
        client_1.release().await?;
    }

    let events = scene.recorder.events();
    let acquired = count(&events, |event| {
        event.actor == Actor::Client2 && matches!(event.kind, EventKind::Acquired { .. })
    });
    Ok(Outcome::default()
        .with("acquired_after_the_owner", acquired)
        .with("updates_lost", updates_lost(&events)))
}

//! PostgreSQL's own advisory lock behind a pooler: two clients share a session, and so the lock.

use super::{
    definition::Scenario,
    stage::{
        findings::{count, lease_over, most_holders_at_once},
        pooled_lock::PooledLock,
        redis_lock::LONG_TTL,
        scene::Scene,
    },
};
use crate::{
    client::{command::Terms, setup::StoreSetup},
    record::{Actor, Checks, Danger, EventKind, Expected, Outcome, World},
};

const SEAT: &str = "seat-12";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "advisory-lock-pooler",
    title: "an advisory lock behind a pooler",
    needs: "pgbouncer",
    seconds: 2,
    claim: "Behind PgBouncer in transaction mode, two clients hold one advisory lock of PostgreSQL, \
            because it belongs to a session; a lock in a table has one holder, with a token.",
    worlds: &[
        World {
            name: "advisory-lock",
            title: "ADVISORY LOCK: pg_try_advisory_lock, for the session",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &[
                ("holders_at_once", Expected::Number(2)),
                ("tokens_issued", Expected::Number(0)),
            ],
        },
        World {
            name: "table",
            title: "A TABLE: each try is one transaction, and each holder has a token",
            danger: Danger::Averted,
            checks: Checks::Nothing,
            end: &[
                ("holders_at_once", Expected::Number(1)),
                ("tokens_issued", Expected::Number(2)),
            ],
        },
    ],
    tracks: &[Actor::Client1, Actor::LockTable, Actor::Client2],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let lock = match scene.world.danger {
        Danger::Strikes => PooledLock::start_advisory().await?,
        Danger::Averted => PooledLock::start_in_a_table(SEAT, scene).await?,
    };
    let client = |actor| scene.client(actor, SEAT, lock.setup(), StoreSetup::None);

    // Client 1 holds the lock, and is paused. The pooler keeps its session for others.
    let mut client_1 = client(Actor::Client1)?;
    client_1.acquire(LONG_TTL).await?;
    client_1.pause().await?;

    // Client 2 tries to acquire the lock, long before client 1's lease expires.
    let mut client_2 = client(Actor::Client2)?;
    let beside = client_2.try_acquire(Terms::new(LONG_TTL)).await?;
    if beside {
        client_2.work().await?;
    }

    // Client 1 wakes up, works and releases. Then the lock is client 2's in any case.
    client_1.resume()?;
    client_1.work().await?;
    client_1.release().await?;
    if !beside {
        client_2.acquire(LONG_TTL).await?;
        client_2.work().await?;
    }
    client_2.release().await?;

    let events = scene.recorder.events();
    let issued = count(&events, |event| {
        matches!(event.kind, EventKind::Acquired { .. }) && event.token.is_some()
    });
    Ok(Outcome::default()
        .with("holders_at_once", most_holders_at_once(&events, lease_over))
        .with("tokens_issued", issued))
}

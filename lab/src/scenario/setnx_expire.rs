//! A lock that is taken in two steps, SETNX and EXPIRE, by a client that dies between the two.

use std::time::Duration;

use super::{
    definition::Scenario,
    stage::{findings::count, redis_lock::RedisLock, scene::Scene},
};
use crate::{
    client::{
        command::{Command, Terms},
        setup::StoreSetup,
    },
    record::{Actor, Checks, Danger, EventKind, Expected, Outcome, World},
};

const SEAT: &str = "seat-12";
const TTL: Duration = Duration::from_millis(1_500);

pub(super) const SCENARIO: Scenario = Scenario {
    name: "setnx-expire",
    title: "a crash between SETNX and EXPIRE",
    needs: "",
    seconds: 10,
    claim: "A client that dies between SETNX and EXPIRE leaves a lock that nobody ever acquires \
            again; if one step takes the lock and sets its ttl, the lock is free after the ttl.",
    worlds: &[
        World {
            name: "setnx-then-expire",
            title: "SETNX, THEN EXPIRE: a client takes the lock, and then sets its ttl",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &[
                ("locks_without_end", Expected::Number(1)),
                ("acquired_after_the_crash", Expected::Number(0)),
            ],
        },
        World {
            name: "one-script",
            title: "ONE SCRIPT: a client takes the lock with its ttl, in one step",
            danger: Danger::Averted,
            checks: Checks::Nothing,
            end: &[
                ("locks_without_end", Expected::Number(0)),
                ("acquired_after_the_crash", Expected::Number(1)),
            ],
        },
    ],
    tracks: &[Actor::Client1, Actor::Redis, Actor::Client2],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let (lock, take): (_, fn(Terms) -> Command) = match scene.world.danger {
        Danger::Strikes => (RedisLock::start_naive(SEAT, scene).await?, Command::SetWithoutExpiry),
        Danger::Averted => (RedisLock::start(SEAT, scene).await?, Command::Acquire),
    };
    let client = |actor| scene.client(actor, SEAT, lock.setup(), StoreSetup::None);

    let ttl = scene.ttl(TTL);

    // Client 1 takes the lock, and dies. Client 2 is there by then, to wait for the lock in time.
    let mut client_2 = client(Actor::Client2)?;
    let mut client_1 = client(Actor::Client1)?;
    client_1.send(&take(Terms::new(ttl)))?;
    client_1.finish_try().await?;
    client_1.kill()?;
    let expires = lock.check_expiry().await?;

    // Client 2 waits for longer than the ttl.
    client_2.send(&take(Terms::new(ttl).wait(ttl + TTL)))?;
    client_2.expect_waiting().await?;
    if let EventKind::Acquired { .. } = client_2.finish_try().await?.kind {
        client_2.work().await?;
        client_2.release().await?;
    }

    let acquired = count(&scene.recorder.events(), |event| {
        event.actor == Actor::Client2 && matches!(event.kind, EventKind::Acquired { .. })
    });
    Ok(Outcome::default()
        .with("locks_without_end", u64::from(!expires))
        .with("acquired_after_the_crash", acquired))
}

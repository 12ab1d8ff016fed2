//! A release that compares the holder, but in a step of its own: the lock changes hands between
//! comparing and deleting.

use super::{
    definition::Scenario,
    stage::{
        client::Client,
        late_release::{self, ANOTHERS_LOCK_DELETED, NO_LOCK_DELETED, TRACKS},
        redis_lock::{LONG_TTL, RedisLock, SHORT_TTL},
        scene::Scene,
    },
};
use crate::{
    client::{
        command::{Command, Terms},
        setup::StoreSetup,
    },
    record::{Actor, Checks, Danger, EventKind, Outcome, World},
};

const SEAT: &str = "seat-12";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "get-then-del",
    title: "and so does GET, then DEL",
    needs: "",
    seconds: 3,
    claim: "A client that looks whether the lock is its own (GET), and then deletes it (DEL), \
            deletes another client's lock if it is paused between the two; one script that does \
            both does not.",
    worlds: &[
        World {
            name: "get-then-del",
            title: "GET, THEN DEL: a client looks whether the lock is its own, and then deletes it",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &ANOTHERS_LOCK_DELETED,
        },
        World {
            name: "one-script",
            title: "ONE SCRIPT: Redis compares and deletes in one step",
            danger: Danger::Averted,
            checks: Checks::Nothing,
            end: &NO_LOCK_DELETED,
        },
    ],
    tracks: &TRACKS,
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let danger = scene.world.danger;
    let lock = match danger {
        Danger::Strikes => RedisLock::start_naive(SEAT, scene).await?,
        Danger::Averted => RedisLock::start(SEAT, scene).await?,
    };
    let client = |actor| scene.client(actor, SEAT, lock.setup(), StoreSetup::None);

    // Client 1 is paused past its lease: between GET and DEL, or before the script that does both.
    let mut client_1 = client(Actor::Client1)?;
    client_1.acquire(scene.ttl(SHORT_TTL)).await?;
    client_1.work().await?;
    let next = match danger {
        Danger::Strikes => {
            client_1.send(&Command::Compare)?;
            client_1.expect(|kind| matches!(kind, EventKind::Compared { .. })).await?;
            Command::Delete
        }
        Danger::Averted => Command::Release,
    };
    client_1.pause().await?;
    client_1.send(&next)?;
    lock.expires(Actor::Client1, None).await?;

    // Client 2 acquires the lock. Client 1 wakes up, and goes on.
    let mut client_2 = client(Actor::Client2)?;
    client_2.acquire(LONG_TTL).await?;
    client_1.resume()?;
    client_1.finish_release().await?;
    lock.check_kept_by(Actor::Client2).await?;

    // Client 3 acquires the lock too, if client 2's was deleted.
    let mut client_3 = client(Actor::Client3)?;
    if client_3.try_acquire(Terms::new(LONG_TTL)).await? {
        finish(&mut client_3, danger).await?;
    }
    finish(&mut client_2, danger).await?;

    Ok(late_release::outcome(&scene.recorder.events()))
}

/// Has a client work and give the lock back, in the way of the world.
async fn finish(client: &mut Client, danger: Danger) -> anyhow::Result<()> {
    client.work().await?;
    match danger {
        Danger::Strikes => client.compare_and_delete().await,
        Danger::Averted => client.release().await,
    }
}

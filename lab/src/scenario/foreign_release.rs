//! A client that was paused past its lease deletes a lock that is another client's by then.

use super::{
    definition::Scenario,
    stage::{
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
    record::{Actor, Checks, Danger, Outcome, World},
};

const SEAT: &str = "seat-12";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "foreign-release",
    title: "DEL frees another client's lock",
    needs: "",
    seconds: 3,
    claim: "A client that was paused past its lease, and then gives the lock back with DEL, \
            deletes another client's lock and lets a third client in beside it; a release that \
            compares the holder deletes nothing.",
    worlds: &[
        World {
            name: "del",
            title: "DEL: a client gives the lock back by deleting it",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &ANOTHERS_LOCK_DELETED,
        },
        World {
            name: "one-script",
            title: "ONE SCRIPT: a release deletes the lock only if the client still holds it",
            danger: Danger::Averted,
            checks: Checks::Nothing,
            end: &NO_LOCK_DELETED,
        },
    ],
    tracks: &TRACKS,
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let (lock, give_back) = match scene.world.danger {
        Danger::Strikes => (RedisLock::start_naive(SEAT, scene).await?, Command::Delete),
        Danger::Averted => (RedisLock::start(SEAT, scene).await?, Command::Release),
    };
    let client = |actor| scene.client(actor, SEAT, lock.setup(), StoreSetup::None);

    // Client 1 is paused past its lease, just before it gives the lock back.
    let mut client_1 = client(Actor::Client1)?;
    client_1.acquire(scene.ttl(SHORT_TTL)).await?;
    client_1.work().await?;
    client_1.pause().await?;
    client_1.send(&give_back)?;
    lock.expires(Actor::Client1, None).await?;

    // Client 2 acquires the lock. Client 1 wakes up, and gives back what it thinks is its own.
    let mut client_2 = client(Actor::Client2)?;
    client_2.acquire(LONG_TTL).await?;
    client_1.resume()?;
    client_1.finish_release().await?;
    lock.check_kept_by(Actor::Client2).await?;

    // Client 3 acquires the lock too, if client 2's was deleted.
    let mut client_3 = client(Actor::Client3)?;
    if client_3.try_acquire(Terms::new(LONG_TTL)).await? {
        client_3.work().await?;
        client_3.send(&give_back)?;
        client_3.finish_release().await?;
    }
    client_2.work().await?;
    client_2.send(&give_back)?;
    client_2.finish_release().await?;

    Ok(late_release::outcome(&scene.recorder.events()))
}

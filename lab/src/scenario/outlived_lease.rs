//! No client is paused: the work just takes longer than the ttl.

use std::time::{Duration, Instant};

use super::{
    definition::Scenario,
    stage::{
        findings::most_holders_at_once,
        redis_lock::{LONG_TTL, RedisLock},
        scene::Scene,
    },
};
use crate::{
    client::{
        command::{Command, Renewal, Terms},
        setup::StoreSetup,
    },
    record::{Actor, Checks, Danger, EventKind, Expected, Outcome, World},
};

const SEAT: &str = "seat-12";
/// Long enough to be renewed in time on a busy machine.
const TTL_MS: u64 = 1_500;
/// Work takes longer than the ttl, and than the ttl after a renewal.
const WORK_MS: u64 = 3_500;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "outlived-lease",
    title: "work that outlasts its lease",
    needs: "",
    seconds: 10,
    claim: "If work takes longer than the ttl, another client acquires the lock while the work \
            still goes on; if the lease is renewed meanwhile, the other client waits until it is \
            done.",
    worlds: &[
        World {
            name: "without-renewal",
            title: "WITHOUT renewal: the lease expires after its ttl",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &ending_with(2),
        },
        World {
            name: "with-renewal",
            title: "WITH renewal: the lock client sets the full ttl again after a third of it",
            danger: Danger::Averted,
            checks: Checks::Nothing,
            end: &ending_with(1),
        },
    ],
    tracks: &[Actor::Client1, Actor::Redis, Actor::Client2],
    story: |scene| Box::pin(story(scene)),
};

const fn ending_with(at_work_at_once: u64) -> [(&'static str, Expected); 3] {
    [
        ("ttl_ms", Expected::AtLeast(TTL_MS)),
        ("worked_ms", Expected::AtLeast(WORK_MS)),
        ("at_work_at_once", Expected::Number(at_work_at_once)),
    ]
}

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let renewal = match scene.world.danger {
        Danger::Strikes => Renewal::Off,
        Danger::Averted => Renewal::Automatic,
    };
    let lock = RedisLock::start(SEAT, scene).await?;
    let client = |actor| {
        let client = scene.client(actor, SEAT, lock.setup(), StoreSetup::None)?;
        anyhow::Ok(client.holding_until(work_done))
    };

    // Client 1 acquires the lock, and starts to work.
    let mut client_1 = client(Actor::Client1)?;
    let ttl = scene.ttl(Duration::from_millis(TTL_MS));
    let work = scene.ttl(Duration::from_millis(WORK_MS));
    let for_ms = u64::try_from(work.as_millis())?;
    client_1.send(&Command::Acquire(Terms::new(ttl).renewal(renewal)))?;
    client_1.finish_acquire().await?;
    let started = Instant::now();
    client_1.send(&Command::Work { for_ms })?;

    // Client 2 waits for the lock.
    let mut client_2 = client(Actor::Client2)?;
    let patient = Terms::new(LONG_TTL).wait(LONG_TTL).renewal(renewal);
    client_2.send(&Command::Acquire(patient))?;
    client_2.expect_waiting().await?;

    // While client 1 works, its lease expires, or is kept.
    let rest = work.saturating_sub(started.elapsed());
    let expired = lock.expires_within(rest, Actor::Client1).await?;
    if expired {
        client_2.finish_acquire().await?;
    } else {
        lock.check_kept_by(Actor::Client1).await?;
    }
    client_1.expect(work_done).await?;
    let worked_ms = u64::try_from(started.elapsed().as_millis())?;
    client_1.release().await?;

    // Client 2 has the lock by now, or acquires it now.
    if !expired {
        client_2.finish_acquire().await?;
    }
    client_2.work().await?;
    client_2.release().await?;

    Ok(Outcome::default()
        .with("ttl_ms", u64::try_from(ttl.as_millis())?)
        .with("worked_ms", worked_ms)
        .with("at_work_at_once", most_holders_at_once(&scene.recorder.events(), work_done)))
}

fn work_done(kind: &EventKind) -> bool {
    *kind == EventKind::Worked
}

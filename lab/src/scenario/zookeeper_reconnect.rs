//! A client loses its connection to ZooKeeper while it works. Its session lives, or expires.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::{
    definition::Scenario,
    stage::{
        findings::most_holders_at_once, redis_lock::LONG_TTL, scene::Scene,
        zookeeper_lock::ZooKeeperLock,
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
/// A session that will expire.
const SHORT_SESSION_MS: u64 = 6_000;
/// A session that will not.
const LONG_SESSION_MS: u64 = 12_000;
/// Long enough for a renewal to fail, which is tried after a third of the session, and short enough
/// for the session.
const SHORT_CUT: Duration = Duration::from_millis(4_500);
/// Longer than each session, so that nobody keeps the lock to the end without renewals.
const WORK_MS: u64 = 13_000;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "zookeeper-reconnect",
    title: "a lost connection, a kept session",
    needs: "zookeeper",
    seconds: 30,
    claim: "A client whose connection to ZooKeeper comes back before its session expires goes on \
            with its lock; if the connection stays away, another client acquires the lock, and \
            both work at once unless the first one looks at its lease.",
    worlds: &[
        World {
            name: "session-expired",
            title: "CUT OFF for longer than the session: the client does not look at its lease",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &[
                ("cut_off_ms", Expected::AtLeast(SHORT_SESSION_MS / 2)),
                ("at_work_at_once", Expected::Number(2)),
                ("released_its_own", Expected::Number(0)),
            ],
        },
        World {
            name: "session-alive",
            title: "CUT OFF for less: the client connects again, and goes on with its session",
            danger: Danger::Averted,
            checks: Checks::Nothing,
            end: &[
                ("cut_off_ms", Expected::AtMost(LONG_SESSION_MS)),
                ("at_work_at_once", Expected::Number(1)),
                ("released_its_own", Expected::Number(1)),
            ],
        },
    ],
    tracks: &[Actor::Client1, Actor::ZooKeeper, Actor::Client2],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let lock = ZooKeeperLock::start(SEAT, scene).await?;
    let client = |actor, setup| {
        let client = scene.client(actor, SEAT, setup, StoreSetup::None)?;
        anyhow::Ok(client.holding_until(work_done))
    };

    // Client 1 acquires the lock, and starts to work. Its lease renews itself.
    let mut client_1 = client(Actor::Client1, lock.setup_that_can_be_cut())?;
    let session_ms = match scene.world.danger {
        Danger::Strikes => SHORT_SESSION_MS,
        Danger::Averted => LONG_SESSION_MS,
    };
    let session = Terms::new(Duration::from_millis(session_ms));
    client_1.send(&Command::Acquire(session.renewal(Renewal::Automatic)))?;
    client_1.finish_acquire().await?;
    client_1.send(&Command::Work { for_ms: WORK_MS })?;

    // Client 2 waits for the lock.
    let mut client_2 = client(Actor::Client2, lock.setup())?;
    client_2.send(&Command::Acquire(Terms::new(LONG_TTL).wait(LONG_TTL)))?;
    client_2.expect_waiting().await?;

    // The network fails, for a short time or a long one.
    lock.cut_off(Actor::Client1);
    let cut = Instant::now();
    match scene.world.danger {
        Danger::Strikes => {
            lock.expires(Actor::Client1).await?;
            client_2.finish_acquire().await?;
        }
        Danger::Averted => sleep(SHORT_CUT).await,
    }
    let cut_off_ms = u64::try_from(cut.elapsed().as_millis())?;
    lock.connect_again(Actor::Client1);

    // Client 1 is done with its work, and finds whether it still has the lock.
    client_1.expect(work_done).await?;
    if scene.world.danger == Danger::Averted {
        lock.check_kept_by(Actor::Client1).await?;
    }
    client_1.release().await?;
    if scene.world.danger == Danger::Averted {
        client_2.finish_acquire().await?;
    }
    client_2.work().await?;
    client_2.release().await?;

    let events = scene.recorder.events();
    let has_kept = events
        .iter()
        .any(|event| event.actor == Actor::Client1 && event.kind == EventKind::Released);
    Ok(Outcome::default()
        .with("cut_off_ms", cut_off_ms)
        .with("at_work_at_once", most_holders_at_once(&events, work_done))
        .with("released_its_own", u64::from(has_kept)))
}

fn work_done(kind: &EventKind) -> bool {
    *kind == EventKind::Worked
}

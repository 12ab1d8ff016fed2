//! 100 clients wait for one lock, which goes from one to the next until all have had it.

use std::time::Duration;

use anyhow::Context;
use testbed::{Redis, wait::until_async};

use super::{
    definition::Scenario,
    stage::{
        redis_lock::{LONG_TTL, RedisLock},
        scene::Scene,
    },
};
use crate::{
    client::{
        command::{Command, Order, Terms, millis},
        setup::{Connections, CrowdSetup, StoreSetup},
    },
    record::{Actor, Checks, Danger, Event, EventKind, Expected, Outcome, World},
};

const SEAT: &str = "seat-12";
const WAITERS: u64 = 100;
/// How long each waiter works: long enough for the others to find the lock taken.
const WORK: Duration = Duration::from_millis(15);
/// How long a waiter waits at most.
const WAIT: Duration = Duration::from_secs(60);
const ALL_WAIT_WITHIN: Duration = Duration::from_secs(20);
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(40);

pub(super) const SCENARIO: Scenario = Scenario {
    name: "thundering-herd",
    title: "what it costs to wake all who wait",
    needs: "",
    seconds: 10,
    claim: "If 100 clients wait for a lock and all are notified when it is free, each handover \
            costs dozens of scripts in Redis; if they queue and only the first is notified, it \
            costs a few.",
    worlds: &[
        World {
            name: "woken-at-once",
            title: "WOKEN AT ONCE: all waiting clients are notified when the lock is free, and try",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &[
                ("handovers", Expected::Number(WAITERS)),
                ("scripts_per_handover", Expected::AtLeast(WAITERS / 5)),
            ],
        },
        World {
            name: "fair",
            title: "FAIR: the clients queue, and only the first is notified when the lock is free",
            danger: Danger::Averted,
            checks: Checks::Nothing,
            end: &[
                ("handovers", Expected::Number(WAITERS)),
                ("scripts_per_handover", Expected::AtMost(WAITERS / 10)),
            ],
        },
    ],
    tracks: &[Actor::Client1, Actor::Redis, Actor::Others],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let order = match scene.world.danger {
        Danger::Strikes => Order::Unordered,
        Danger::Averted => Order::Fair,
    };
    let lock = RedisLock::start(SEAT, scene).await?;
    let redis = lock.redis();

    // Client 1 holds the lock.
    let mut client_1 = scene.client(Actor::Client1, SEAT, lock.setup(), StoreSetup::None)?;
    client_1.acquire(LONG_TTL).await?;
    client_1.work().await?;

    // All others wait: each has tried, subscribed and tried again.
    let crowd = CrowdSetup { first: 1, size: WAITERS, connections: Connections::Own };
    let mut herd = scene.crowd(crowd, SEAT, lock.setup(), StoreSetup::None)?;
    herd.send(&[
        Command::Acquire(Terms::new(LONG_TTL).wait(WAIT).order(order)),
        Command::Work { for_ms: millis(WORK) },
        Command::Release,
    ])?;
    until_async(ALL_WAIT_WITHIN, async || {
        let waiting = subscribers(redis).await? == WAITERS;
        Ok(waiting && Done::read(redis).await?.scripts >= 2 * WAITERS)
    })
    .await
    .context("not all clients came to wait")?;
    let before = Done::read(redis).await?;
    let waiters = subscribers(redis).await?;
    scene.record(Actor::Redis, None, EventKind::WaitedFor { waiters });

    // Client 1 releases the lock, and it goes from one to the next.
    client_1.release().await?;
    herd.wait(HANDED_OVER_WITHIN).await?;
    let done = Done::read(redis).await?;
    let (scripts, commands) = (done.scripts - before.scripts, done.commands - before.commands);
    scene.record(Actor::Redis, None, EventKind::Done { scripts, commands });

    let handovers = handovers(&scene.recorder.events());
    Ok(Outcome::default()
        .with("waiters", waiters)
        .with("handovers", handovers)
        .with("scripts_per_handover", scripts.checked_div(handovers))
        .with("commands_per_handover", commands.checked_div(handovers)))
}

/// What a Redis has done: the scripts that clients called, and all commands, also those of scripts.
struct Done {
    scripts: u64,
    commands: u64,
}

impl Done {
    async fn read(redis: &Redis) -> anyhow::Result<Self> {
        let mut scripts = 0;
        // The first time that a client calls a script, it sends the whole script (EVAL).
        for command in ["cmdstat_evalsha", "cmdstat_eval"] {
            // A command that was never called has no line.
            let stats = redis.info(command).await.unwrap_or_default();
            let calls = stats.split(',').find_map(|stat| stat.strip_prefix("calls="));
            scripts += calls.unwrap_or("0").parse::<u64>()?;
        }
        Ok(Self { scripts, commands: redis.info("total_commands_processed").await?.parse()? })
    }
}

/// The number of clients that are subscribed to the freeing of the lock, or to their turn.
async fn subscribers(redis: &Redis) -> anyhow::Result<u64> {
    let pattern = format!("fenced:{{{SEAT}}}:freed*");
    let channels: Vec<String> = redis.command(&["PUBSUB", "CHANNELS", &pattern]).await?;
    let mut numbers = vec!["PUBSUB", "NUMSUB"];
    numbers.extend(channels.iter().map(String::as_str));
    let numbers: Vec<(String, u64)> = redis.command(&numbers).await?;
    Ok(numbers.iter().map(|(_, number)| number).sum())
}

/// The number of clients that have had the lock, as the crowd reports it.
fn handovers(events: &[Event]) -> u64 {
    let handovers = |event: &Event| match event.kind {
        EventKind::HandedOver { handovers } => handovers,
        _ => 0,
    };
    events.iter().map(handovers).sum()
}

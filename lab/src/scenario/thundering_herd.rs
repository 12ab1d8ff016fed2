//! 100 clients wait for one lock, which goes from one to the next until all have had it.

use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use serde_json::Map;

use super::{
    Scenario,
    stage::{
        Work,
        driver::Client,
        lock::LONG_TTL,
        workplace::{LOCK, Workplace},
    },
};
use crate::{
    client::{waiters::Order, worker::Way},
    record::{Actor, Checks, Danger, Expected, Outcome, Recorder, World},
};
use testbed::{Databases, Redis, wait::until_async};

const WAITERS: u64 = 100;
/// For how long each works: long enough for the others to find the lock taken.
const WORK: Duration = Duration::from_millis(15);
const WAIT_WITHIN: Duration = Duration::from_secs(20);
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(40);

const WORLDS: [World; 2] = [
    World {
        name: "woken-at-once",
        title: "WOKEN AT ONCE: whoever waits hears that the lock is free, and tries",
        danger: Danger::Strikes,
        checks: Checks::Nothing,
        end: &[
            ("handovers", Expected::Number(WAITERS)),
            ("scripts_per_handover", Expected::AtLeast(WAITERS / 5)),
        ],
    },
    World {
        name: "fair",
        title: "FAIR: waiters stand in a queue, and the first of them hears that the lock is free",
        danger: Danger::Averted,
        checks: Checks::Nothing,
        end: &[
            ("handovers", Expected::Number(WAITERS)),
            ("scripts_per_handover", Expected::AtMost(WAITERS / 10)),
        ],
    },
];

#[derive(Debug)]
pub(super) struct ThunderingHerd;

#[async_trait(?Send)]
impl Scenario for ThunderingHerd {
    fn name(&self) -> &'static str {
        "thundering-herd"
    }

    fn claim(&self) -> &'static str {
        "If 100 clients wait for a lock and all are woken when it is free, each handover costs dozens of \
         scripts in Redis; if they stand in a queue and the first is woken, it costs a few."
    }

    fn worlds(&self) -> &'static [World] {
        &WORLDS
    }

    fn lanes(&self) -> &'static [Actor] {
        &[Actor::Client1, Actor::Redis, Actor::Others]
    }

    async fn play(
        &self,
        world: &World,
        _: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let order = match world.danger {
            Danger::Strikes => Order::WokenAtOnce,
            Danger::Averted => Order::Fair,
        };
        let workplace = Workplace::start(Way::Scripts, &["released"], recorder).await?;
        let mut client_1 = workplace.worker(Actor::Client1, LONG_TTL, Duration::ZERO)?;
        client_1.expect("acquired", recorder).await?;
        client_1.take("worked", recorder).await?;
        let redis = workplace.redis();
        let herd = Work::Wait {
            lock: LOCK,
            order,
            ttl: LONG_TTL,
            count: WAITERS,
            work: WORK,
            redis: &redis.url(),
        };
        let mut herd = Client::start(Actor::Others, herd)?;
        // Each has tried, subscribed and tried again.
        until_async(WAIT_WITHIN, async || {
            let waiting = subscribers(redis).await? == WAITERS;
            Ok(waiting && Done::by(redis).await?.scripts >= 2 * WAITERS)
        })
        .await
        .context("the waiters did not all come to wait")?;
        let before = Done::by(redis).await?;
        let waiters = subscribers(redis).await?;
        note(recorder, "waited-for", &[("waiters", waiters)]);

        client_1.finish(recorder).await?;
        herd.expect_within("handed-over", HANDED_OVER_WITHIN, recorder).await?;
        herd.ends_with(0).await?;
        let handovers = handovers(recorder);
        let done = Done::by(redis).await?.since(&before);
        note(recorder, "done", &[("scripts", done.scripts), ("commands", done.commands)]);
        let each = |count: u64| count.checked_div(handovers);
        Ok(Outcome::default()
            .with("waiters", waiters)
            .with("handovers", handovers)
            .with("scripts_per_handover", each(done.scripts))
            .with("commands_per_handover", each(done.commands)))
    }
}

/// What a Redis has done: the scripts that clients had it run, and all commands, those of scripts too.
struct Done {
    scripts: u64,
    commands: u64,
}

impl Done {
    async fn by(redis: &Redis) -> anyhow::Result<Self> {
        let mut scripts = 0;
        // The first time that a client sends a script, it is sent whole.
        for command in ["cmdstat_evalsha", "cmdstat_eval"] {
            // A command that was never used has no line.
            let stats = redis.info(command).await.unwrap_or_default();
            let calls = stats.split(',').find_map(|stat| stat.strip_prefix("calls="));
            scripts += calls.unwrap_or("0").parse::<u64>()?;
        }
        Ok(Self { scripts, commands: redis.info("total_commands_processed").await?.parse()? })
    }

    fn since(&self, before: &Self) -> Self {
        Self { scripts: self.scripts - before.scripts, commands: self.commands - before.commands }
    }
}

/// How many clients would hear that the lock is free, or that it is their turn.
async fn subscribers(redis: &Redis) -> anyhow::Result<u64> {
    let pattern = format!("fenced:{{{LOCK}}}:freed*");
    let channels: Vec<String> = redis.command(&["PUBSUB", "CHANNELS", &pattern]).await?;
    let mut numbers = vec!["PUBSUB", "NUMSUB"];
    numbers.extend(channels.iter().map(String::as_str));
    let numbers: Vec<(String, u64)> = redis.command(&numbers).await?;
    Ok(numbers.iter().map(|(_, number)| number).sum())
}

/// How many times the waiters have got the lock, as they tell it.
fn handovers(recorder: &Recorder) -> u64 {
    recorder.events().filter_map(|event| event.number("handovers")).sum()
}

fn note(recorder: &mut Recorder, event: &str, numbers: &[(&str, u64)]) {
    let details = numbers.iter().map(|&(name, number)| (name.to_owned(), number.into()));
    recorder.note_with(Actor::Redis, event, None, Map::from_iter(details));
}

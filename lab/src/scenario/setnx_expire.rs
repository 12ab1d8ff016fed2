//! A lock that is taken in two steps, SETNX and EXPIRE, and a client that dies between the two.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Map;

use super::{
    Scenario,
    stage::{driver::GAVE_UP, workplace::Workplace},
};
use crate::{
    client::worker::Way,
    record::{Actor, Checks, Danger, Expected, Outcome, Recorder, World},
};
use testbed::Databases;

const TTL_MS: u64 = 1_500;
const TTL: Duration = Duration::from_millis(TTL_MS);
/// How long client 2 waits: well past the time after which client 1's lock was to end.
const WAIT: Duration = TTL.saturating_mul(2);

const WORLDS: [World; 2] = [
    World {
        name: "setnx-then-expire",
        title: "SETNX, THEN EXPIRE: the lock is taken, and then given its ttl",
        danger: Danger::Strikes,
        checks: Checks::Nothing,
        end: &[
            ("locks_without_end", Expected::Number(1)),
            ("acquired_after_the_crash", Expected::Number(0)),
        ],
    },
    World {
        name: "one-script",
        title: "ONE SCRIPT: the lock is taken with its ttl, in one step",
        danger: Danger::Averted,
        checks: Checks::Nothing,
        end: &[
            ("locks_without_end", Expected::Number(0)),
            ("acquired_after_the_crash", Expected::Number(1)),
        ],
    },
];

#[derive(Debug)]
pub(super) struct SetnxExpire;

#[async_trait(?Send)]
impl Scenario for SetnxExpire {
    fn name(&self) -> &'static str {
        "setnx-expire"
    }

    fn claim(&self) -> &'static str {
        "A client that dies between SETNX and EXPIRE leaves a lock that nobody ever gets again; if one \
         step takes the lock and sets its ttl, it is free when the ttl is over."
    }

    fn worlds(&self) -> &'static [World] {
        &WORLDS
    }

    fn lanes(&self) -> &'static [Actor] {
        &[Actor::Client1, Actor::Redis, Actor::Client2]
    }

    async fn play(
        &self,
        world: &World,
        _: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let (way, taken) = match world.danger {
            Danger::Strikes => (Way::SetnxThenExpire, "set-without-expiry"),
            Danger::Averted => (Way::Scripts, "acquired"),
        };
        let workplace = Workplace::start(way, &["killed", "released"], recorder).await?;
        let mut client_1 = workplace.worker(Actor::Client1, TTL, Duration::ZERO)?;
        client_1.expect(taken, recorder).await?;
        client_1.kill(recorder)?;

        let ends_in = workplace.ends_in().await?;
        let remaining = Map::from_iter([("remaining_ms".to_owned(), ends_in.into())]);
        recorder.note_with(Actor::Redis, "lock-remains", None, remaining);

        let mut client_2 = workplace.worker(Actor::Client2, TTL, WAIT)?;
        client_2.expect("busy", recorder).await?;
        let waited = client_2.next(recorder).await?;
        if waited != GAVE_UP {
            client_2.finish(recorder).await?;
        }
        let events = recorder.events().filter(|event| event.actor == Actor::Client2);
        let acquired = events.filter(|event| event.event == "acquired").count();
        Ok(Outcome::default()
            .with("locks_without_end", u64::from(ends_in.is_none()))
            .with("acquired_after_the_crash", u64::try_from(acquired)?))
    }
}

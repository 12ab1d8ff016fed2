//! Nobody is paused: the work just takes longer than the ttl.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::time::sleep;

use super::{
    Scenario,
    stage::{lock::LONG_TTL, workplace::Workplace},
};
use crate::{
    client::worker::Way,
    record::{Actor, Checks, Danger, Expected, Outcome, Recorder, World},
};
use testbed::Databases;

/// Long enough for it to be renewed on a machine that is busy.
const TTL_MS: u64 = 1_500;
const WORK_MS: u64 = 3_500;

const WORLDS: [World; 2] = [
    World {
        name: "without-renewal",
        title: "WITHOUT renewal: the lease ends with its ttl",
        danger: Danger::Strikes,
        checks: Checks::Nothing,
        end: &[
            ("ttl_ms", Expected::Number(TTL_MS)),
            ("worked_ms", Expected::AtLeast(WORK_MS)),
            ("at_work_at_once", Expected::Number(2)),
        ],
    },
    World {
        name: "with-renewal",
        title: "WITH renewal: the lock client sets the full ttl again, at a third of it",
        danger: Danger::Averted,
        checks: Checks::Nothing,
        end: &[
            ("ttl_ms", Expected::Number(TTL_MS)),
            ("worked_ms", Expected::AtLeast(WORK_MS)),
            ("at_work_at_once", Expected::Number(1)),
        ],
    },
];

#[derive(Debug)]
pub(super) struct OutlivedLease;

#[async_trait(?Send)]
impl Scenario for OutlivedLease {
    fn name(&self) -> &'static str {
        "outlived-lease"
    }

    fn claim(&self) -> &'static str {
        "If work takes longer than the ttl, another client gets the lock while it still goes on; if the \
         lease is renewed meanwhile, the other one waits until it is done."
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
        let way = match world.danger {
            Danger::Strikes => Way::Scripts,
            Danger::Averted => Way::ScriptsAndRenewal,
        };
        let work = Duration::from_millis(WORK_MS);
        let workplace = Workplace::start(way, &["worked"], recorder).await?;
        let mut client_1 =
            workplace.worker(Actor::Client1, Duration::from_millis(TTL_MS), Duration::ZERO)?;
        client_1.expect("acquired", recorder).await?;
        let (begun, acquired_ms) = (Instant::now(), recorder.now_ms());
        let lock = workplace.lock().await?;
        let mut client_2 = workplace.worker(Actor::Client2, LONG_TTL, LONG_TTL)?;
        client_2.expect("busy", recorder).await?;

        // Until client 1 has done its work, its lease runs out, or doesn't.
        let rest = work.saturating_sub(begun.elapsed());
        let ran_out = workplace.runs_out_within(rest, lock, Actor::Client1, recorder).await?;
        if ran_out {
            client_2.expect("acquired", recorder).await?;
        } else {
            workplace.note_kept(Actor::Client1, recorder).await?;
        }
        sleep(work.saturating_sub(begun.elapsed())).await;
        client_1.take("worked", recorder).await?;
        let worked_ms = recorder.now_ms() - acquired_ms;

        client_1.finish(recorder).await?;
        if !ran_out {
            client_2.expect("acquired", recorder).await?;
        }
        client_2.finish(recorder).await?;
        Ok(Outcome::default()
            .with("ttl_ms", TTL_MS)
            .with("worked_ms", worked_ms)
            .with("at_work_at_once", workplace.most_at_once(recorder)))
    }
}

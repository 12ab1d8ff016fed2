//! Scenarios: what goes wrong, played with real processes, next to what keeps it from going wrong.
//!
//! Each is one file: what it claims, what its worlds are and how they have to end, and its course. What
//! they are played with, and the courses that several share, is their `stage`.

mod claim_before_read;
mod counter_lost;
mod delayed_request;
mod embedded_postgres;
mod failover;
mod flash_sale;
mod foreign_release;
mod get_then_del;
mod never_saw_34;
mod outlived_lease;
mod oversell;
mod redlock_clock_jump;
mod redlock_lost_reply;
mod redlock_minority_down;
mod redlock_restart;
mod setnx_expire;
mod stage;
mod thundering_herd;
mod token_33_34;

use async_trait::async_trait;

use crate::record::{Actor, Outcome, Outcomes, Recorder, World};
use testbed::Databases;

/// Something that goes wrong without a fence, or with a lock that isn't made well, and not with one
/// that is.
#[async_trait(?Send)]
pub trait Scenario: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it claims, in one sentence.
    fn claim(&self) -> &'static str;

    /// The worlds that it is played in: the unsafe ones first, then their twins.
    fn worlds(&self) -> &'static [World];

    /// Who takes part, in the order in which the timeline has them.
    fn lanes(&self) -> &'static [Actor] {
        &[Actor::Client1, Actor::Redis, Actor::Client2, Actor::Storage]
    }

    /// Plays it in one world.
    ///
    /// # Errors
    /// If it can't be played.
    async fn play(
        &self,
        world: &World,
        databases: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome>;
}

/// Plays a scenario in all its worlds. Returns how they ended, and whether this showed what it
/// claims.
///
/// # Errors
/// If it can't be played.
pub async fn play(
    scenario: &dyn Scenario,
    recorder: &mut Recorder,
) -> anyhow::Result<(Outcomes, bool)> {
    let mut outcomes = Outcomes::default();
    let mut databases = Databases::default();
    let mut shown = true;
    for world in scenario.worlds() {
        recorder.enter(*world);
        let outcome = scenario.play(world, &mut databases, recorder).await?;
        shown &= outcome.is_as(world.end);
        outcomes.0.push((*world, outcome));
    }
    Ok((outcomes, shown))
}

/// All scenarios; the first is the one to begin with.
pub static ALL: &[&dyn Scenario] = &[
    &token_33_34::Token33And34,
    &oversell::Oversell,
    &claim_before_read::ClaimBeforeRead,
    &embedded_postgres::EmbeddedPostgres,
    &never_saw_34::NeverSaw34,
    &delayed_request::DelayedRequest,
    &setnx_expire::SetnxExpire,
    &foreign_release::ForeignRelease,
    &get_then_del::GetThenDel,
    &outlived_lease::OutlivedLease,
    &counter_lost::CounterLost,
    &failover::Failover,
    &redlock_minority_down::RedlockMinorityDown,
    &redlock_lost_reply::RedlockLostReply,
    &redlock_restart::RedlockRestart,
    &redlock_clock_jump::RedlockClockJump,
    &thundering_herd::ThunderingHerd,
    &flash_sale::FlashSale,
];

/// The scenario of a name.
pub fn named(name: &str) -> Option<&'static dyn Scenario> {
    ALL.iter().copied().find(|scenario| scenario.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Checks, Danger, Expected};

    /// The unsafe worlds, or the safe ones.
    fn worlds(scenario: &dyn Scenario, danger: Danger) -> Vec<World> {
        scenario.worlds().iter().filter(|world| world.danger == danger).copied().collect()
    }

    #[test]
    fn no_run_can_end_as_an_unsafe_world_and_as_its_twin() {
        for scenario in ALL {
            let [unsafe_ones, twins] =
                [Danger::Strikes, Danger::Averted].map(|danger| worlds(*scenario, danger));
            assert!(!unsafe_ones.is_empty() && !twins.is_empty(), "{}", scenario.name());
            for one in &unsafe_ones {
                for twin in &twins {
                    let apart = one.end.iter().any(|(name, expected)| {
                        twin.end
                            .iter()
                            .any(|(other, twins)| other == name && expected.excludes(*twins))
                    });
                    assert!(apart, "{}: {} and {}", scenario.name(), one.name, twin.name);
                }
            }
        }
    }

    /// Something is to be lost in its unsafe world, and isn't.
    struct LosesNothing;

    const WORLDS: [World; 2] = [
        World {
            name: "unsafe",
            title: "WITHOUT",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &[("updates_lost", Expected::Number(1))],
        },
        World {
            name: "safe",
            title: "WITH",
            danger: Danger::Averted,
            checks: Checks::Nothing,
            end: &[("updates_lost", Expected::Number(0))],
        },
    ];

    #[async_trait(?Send)]
    impl Scenario for LosesNothing {
        fn name(&self) -> &'static str {
            "loses-nothing"
        }

        fn claim(&self) -> &'static str {
            "Something is lost in one world, and nothing in the other."
        }

        fn worlds(&self) -> &'static [World] {
            &WORLDS
        }

        async fn play(
            &self,
            _: &World,
            _: &mut Databases,
            _: &mut Recorder,
        ) -> anyhow::Result<Outcome> {
            Ok(Outcome::default().with("updates_lost", 0))
        }
    }

    #[tokio::test]
    async fn a_run_in_which_nothing_goes_wrong_shows_nothing() {
        let mut recorder = Recorder::start(LosesNothing.worlds()[0], |_| {});
        let (outcomes, shown) = play(&LosesNothing, &mut recorder).await.unwrap();
        assert_eq!(outcomes.0.len(), 2);
        assert!(!shown);
    }
}

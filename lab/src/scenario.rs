//! Scenarios: a danger that strikes real processes, beside a safeguard that averts it.
//!
//! Each is one file: its claim, its worlds with the end that each must have, and its story, step by
//! step. Start with `token_33_34`. The `stage` has the servers and clients that they use.

mod advisory_lock_pooler;
mod claim_before_read;
mod counter_lost;
mod definition;
mod delayed_request;
mod embedded_postgres;
mod etcd_paused;
mod etcd_restored;
mod failover;
mod failover_async;
mod failover_sync;
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
mod split_network;
mod sql_expired;
mod sql_unique_index;
pub(crate) mod stage;
mod thundering_herd;
mod token_33_34;
mod zookeeper_reconnect;
mod zookeeper_session;

pub use self::definition::Scenario;

/// Scenarios of one kind.
#[derive(Debug)]
pub struct Group {
    /// Its title.
    pub title: &'static str,
    /// Its scenarios, in the order in which they are best seen.
    pub scenarios: &'static [Scenario],
}

/// All scenarios, by group. The first is the one to begin with.
pub static GROUPS: [Group; 6] = [
    Group {
        title: "The story",
        scenarios: &[
            token_33_34::SCENARIO,
            oversell::SCENARIO,
            claim_before_read::SCENARIO,
            never_saw_34::SCENARIO,
            delayed_request::SCENARIO,
            outlived_lease::SCENARIO,
            flash_sale::SCENARIO,
            thundering_herd::SCENARIO,
        ],
    },
    Group {
        title: "What locks get wrong",
        scenarios: &[
            setnx_expire::SCENARIO,
            foreign_release::SCENARIO,
            get_then_del::SCENARIO,
            counter_lost::SCENARIO,
            failover::SCENARIO,
        ],
    },
    Group {
        title: "Redlock",
        scenarios: &[
            redlock_minority_down::SCENARIO,
            redlock_lost_reply::SCENARIO,
            redlock_restart::SCENARIO,
            redlock_clock_jump::SCENARIO,
        ],
    },
    Group {
        title: "Other lock services",
        scenarios: &[
            etcd_paused::SCENARIO,
            etcd_restored::SCENARIO,
            zookeeper_session::SCENARIO,
            zookeeper_reconnect::SCENARIO,
        ],
    },
    Group {
        title: "Databases",
        scenarios: &[
            embedded_postgres::SCENARIO,
            sql_expired::SCENARIO,
            sql_unique_index::SCENARIO,
            advisory_lock_pooler::SCENARIO,
        ],
    },
    Group {
        title: "A PostgreSQL that fails over",
        scenarios: &[failover_sync::SCENARIO, failover_async::SCENARIO, split_network::SCENARIO],
    },
];

/// All scenarios, in the order of their groups.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    GROUPS.iter().flat_map(|group| group.scenarios)
}

/// Finds the scenario of a name.
pub fn find(name: &str) -> Option<&'static Scenario> {
    all().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Danger, World};

    #[test]
    fn no_run_can_end_as_an_unsafe_world_and_as_its_twin() {
        for Scenario { name, worlds, .. } in all() {
            let with = |danger| worlds.iter().filter(move |world: &&World| world.danger == danger);
            assert!(with(Danger::Strikes).count() > 0, "{name} has no unsafe world");
            assert!(with(Danger::Averted).count() > 0, "{name} has no safe world");
            for one in with(Danger::Strikes) {
                for twin in with(Danger::Averted) {
                    let apart = one.end.iter().any(|(fact, expected)| {
                        twin.end
                            .iter()
                            .any(|(other, twins)| other == fact && expected.excludes(*twins))
                    });
                    assert!(apart, "{name}: {} and {}", one.name, twin.name);
                }
            }
        }
    }
}

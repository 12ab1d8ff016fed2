//! Leases that join free nodes.
//!
//! Acquires take one step here. Failed tries of other clients raise the counters of free nodes.

use redlock_model::{
    Config, Fault,
    properties::{
        NO_LEASE_OUTLIVES,
        Situation::{Regained, Reissued, RenewedWithNewToken, TwoLeases},
    },
};

use super::{assert_controls, assert_holds};

/// Two clients with one reissue each. They renew, and join nodes.
const JOINS: Config = Config {
    atomic_acquires: true,
    highest_counter: 3,
    highest_initial_counter: 1,
    reissues: 1,
    renewals: true,
    joins: true,
    failed_tries: true,
    ..Config::TWO_CLIENTS
};

/// One client. Its reissue for a higher token may follow one that only makes a joined node count.
///
#[test]
fn reissued_tokens_are_unique_and_grow_after_a_lease_has_tried_to_regain_nodes() {
    let config = Config {
        clients: 1,
        highest_counter: 3,
        highest_initial_counter: 0,
        reissues: 2,
        renewals: false,
        failed_tries: false,
        ..JOINS
    };
    assert_holds(config, 57_900, &[Reissued]);
}

/// Two clients with one reissue each on five nodes. They join nodes.
const FIVE_NODES: Config = Config {
    nodes: 5,
    highest_counter: 2,
    highest_initial_counter: 0,
    failed_tries: false,
    ..JOINS
};

#[test]
fn tokens_are_unique_and_grow_on_five_nodes() {
    assert_holds(FIVE_NODES, 245_000, &[TwoLeases, Reissued, Regained]);
}

#[test]
fn with_each_broken_rule_of_a_join_a_lease_outlives_a_higher_token() {
    assert_controls(&[
        (JOINS, Fault::JoinUnderSameGrant, NO_LEASE_OUTLIVES, 9),
        (JOINS, Fault::JoinUnderOwnGrant, NO_LEASE_OUTLIVES, 9),
        (JOINS, Fault::FloorIsIgnored, NO_LEASE_OUTLIVES, 9),
        (FIVE_NODES, Fault::JoinUnderSameGrant, NO_LEASE_OUTLIVES, 10),
    ]);
}

mod at_length {
    use super::*;

    #[test]
    fn tokens_are_unique_and_grow_with_leases_that_join_nodes() {
        assert_holds(JOINS, 519_000, &[TwoLeases, Reissued, RenewedWithNewToken, Regained]);
    }

    /// A reissue needs higher counters, and no renewals.
    const REISSUES: Config = Config {
        highest_counter: 4,
        highest_initial_counter: 0,
        renewals: false,
        failed_tries: false,
        ..JOINS
    };

    #[test]
    fn tokens_are_unique_and_grow_with_joins_and_higher_counters() {
        assert_holds(REISSUES, 2_277_000, &[TwoLeases, Reissued]);
    }

    #[test]
    fn with_each_broken_count_of_nodes_a_lease_outlives_a_higher_token() {
        let five = Config { nodes: 5, highest_initial_counter: 0, ..JOINS };
        assert_controls(&[
            (REISSUES, Fault::ReissueIgnoresFloor, NO_LEASE_OUTLIVES, 13),
            (JOINS, Fault::SameGrantOneAbove, NO_LEASE_OUTLIVES, 11),
            (JOINS, Fault::CountsOneAbove, NO_LEASE_OUTLIVES, 9),
            (five, Fault::FloorIsIgnored, NO_LEASE_OUTLIVES, 10),
            (five, Fault::JoinUnderOwnGrant, NO_LEASE_OUTLIVES, 10),
        ]);
    }
}

//! Leases that join free nodes.
//!
//! Acquires take one step here. Failed tries of other clients raise the counters of free nodes.

use redlock_model::{
    Config, Rounds,
    properties::{
        NO_LEASE_OUTLIVES,
        Situation::{Regained, Reissued, RenewedWithNewToken, TwoLeases},
    },
    protocol::{JoinRule, Protocol},
};

use super::{assert_holds, assert_violates};

/// Two clients with one reissue each. They renew, and join nodes.
const JOINS: Config = Config {
    rounds: Rounds::AtomicAcquires,
    highest_counter: 3,
    highest_initial_counter: 1,
    reissues: 1,
    renewals: true,
    joins: true,
    failed_tries: true,
    ..Config::TWO_CLIENTS
};

fn with_join(join: JoinRule) -> Config {
    Config { protocol: Protocol { join, ..Protocol::AS_BUILT }, ..JOINS }
}

/// One client. Its reissue for a higher token may follow one that only makes a joined node count.
///
/// 57 909 states; 1 s on one core.
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

#[test]
fn with_a_join_under_the_same_grant_a_lease_outlives_a_higher_token() {
    assert_violates(with_join(JoinRule::SameGrant), NO_LEASE_OUTLIVES, 9);
}

#[test]
fn with_a_join_under_its_own_grant_without_a_floor_a_lease_outlives_a_higher_token() {
    assert_violates(with_join(JoinRule::OwnGrant), NO_LEASE_OUTLIVES, 9);
}

/// Two clients with one reissue each on five nodes. They join nodes.
const FIVE_NODES: Config = Config {
    nodes: 5,
    highest_counter: 2,
    highest_initial_counter: 0,
    failed_tries: false,
    ..JOINS
};

/// 245 266 states; 4 s on one core.
#[test]
fn tokens_are_unique_and_grow_on_five_nodes() {
    assert_holds(FIVE_NODES, 245_000, &[TwoLeases, Reissued, Regained]);
}

#[test]
fn on_five_nodes_with_a_join_under_the_same_grant_a_lease_outlives_a_higher_token() {
    let protocol = Protocol { join: JoinRule::SameGrant, ..Protocol::AS_BUILT };
    assert_violates(Config { protocol, ..FIVE_NODES }, NO_LEASE_OUTLIVES, 10);
}

/// Five nodes with a broken join, and failed tries, which raise the counters up to 3.
fn on_five_nodes(join: JoinRule) -> Config {
    Config { nodes: 5, highest_initial_counter: 0, ..with_join(join) }
}

#[test]
fn with_a_floor_that_nothing_counts_by_a_lease_outlives_a_higher_token() {
    assert_violates(with_join(JoinRule::FloorIsIgnored), NO_LEASE_OUTLIVES, 9);
}

mod at_length {
    use super::*;

    /// 519 337 states; 8 s on one core.
    #[test]
    fn tokens_are_unique_and_grow_with_leases_that_join_nodes() {
        assert_holds(JOINS, 519_000, &[TwoLeases, Reissued, RenewedWithNewToken, Regained]);
    }

    #[test]
    fn on_five_nodes_with_a_floor_that_nothing_counts_by_a_lease_outlives_a_higher_token() {
        assert_violates(on_five_nodes(JoinRule::FloorIsIgnored), NO_LEASE_OUTLIVES, 10);
    }

    #[test]
    fn on_five_nodes_with_a_join_without_a_floor_a_lease_outlives_a_higher_token() {
        assert_violates(on_five_nodes(JoinRule::OwnGrant), NO_LEASE_OUTLIVES, 10);
    }

    #[test]
    fn with_a_reissue_that_counts_nodes_above_the_floor_a_lease_outlives_a_higher_token() {
        let config = Config {
            highest_counter: 4,
            highest_initial_counter: 0,
            renewals: false,
            failed_tries: false,
            ..with_join(JoinRule::ReissueIgnoresFloor)
        };
        assert_violates(config, NO_LEASE_OUTLIVES, 13);
    }

    #[test]
    fn with_a_join_under_the_same_grant_above_the_token_by_one_a_lease_outlives_a_higher_token() {
        assert_violates(with_join(JoinRule::SameGrantOneAbove), NO_LEASE_OUTLIVES, 11);
    }

    #[test]
    fn with_a_node_that_counts_with_a_floor_above_the_token_by_one_a_lease_outlives_a_higher_token()
    {
        assert_violates(with_join(JoinRule::CountsOneAbove), NO_LEASE_OUTLIVES, 9);
    }
}

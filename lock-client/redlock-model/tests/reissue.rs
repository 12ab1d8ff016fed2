//! Reissues and renewals.

use redlock_model::{
    Config, Fault,
    properties::{
        NO_LEASE_OUTLIVES,
        Situation::{Regained, Reissued, RenewedWithNewToken, TwoLeases},
        TOKENS_ARE_UNIQUE,
    },
};

use super::{assert_controls, assert_holds};

/// Two clients with one reissue each, which a renewal may find half done. Acquires take one step.
const REISSUES: Config = Config {
    atomic_acquires: true,
    highest_counter: 4,
    highest_initial_counter: 1,
    reissues: 1,
    renewals: true,
    ..Config::TWO_CLIENTS
};

const FIVE_NODES: Config =
    Config { nodes: 5, highest_counter: 2, highest_initial_counter: 0, ..REISSUES };

/// Two processes have one handle. They reissue at once, while another client acquires. All counters start
/// at 0.
const SHARED: Config = Config {
    clients: 3,
    adopts: true,
    renewals: false,
    highest_counter: 3,
    highest_initial_counter: 0,
    ..REISSUES
};

const SHARED_WITH_JOINS: Config =
    Config { renewals: true, joins: true, highest_counter: 2, ..SHARED };

#[test]
fn reissued_tokens_are_unique_and_grow_on_five_nodes() {
    assert_holds(FIVE_NODES, 38_000, &[TwoLeases, Reissued]);
}

#[test]
fn with_each_broken_rule_of_a_reissue_a_token_is_issued_twice() {
    assert_controls(&[
        (REISSUES, Fault::ReissueSealsNoNode, TOKENS_ARE_UNIQUE, 10),
        (REISSUES, Fault::ReissueIgnoresRejectedSeal, TOKENS_ARE_UNIQUE, 11),
        (SHARED, Fault::ReissueSealsNoNode, TOKENS_ARE_UNIQUE, 10),
    ]);
}

#[test]
fn with_each_broken_rule_of_a_join_a_shared_lease_outlives_a_higher_token() {
    let higher = Config { highest_counter: 3, ..SHARED_WITH_JOINS };
    assert_controls(&[
        (SHARED_WITH_JOINS, Fault::JoinUnderSameGrant, NO_LEASE_OUTLIVES, 9),
        (higher, Fault::FloorIsIgnored, NO_LEASE_OUTLIVES, 9),
    ]);
}

mod at_length {
    use super::*;

    /// `make model` has renewals with as many counters.
    #[test]
    fn two_processes_that_reissue_one_lease_do_no_harm() {
        assert_holds(SHARED, 134_000, &[TwoLeases, Reissued]);
    }

    /// They join free nodes, too.
    #[test]
    fn two_processes_that_renew_and_reissue_one_lease_do_no_harm() {
        let situations = [TwoLeases, Reissued, RenewedWithNewToken, Regained];
        assert_holds(SHARED_WITH_JOINS, 429_000, &situations);
    }

    /// `make model` has rounds of many steps, too.
    #[test]
    fn reissued_tokens_are_unique_and_grow() {
        assert_holds(REISSUES, 870_000, &[TwoLeases, Reissued, RenewedWithNewToken]);
    }

    #[test]
    fn with_each_broken_seal_of_a_half_done_reissue_a_token_is_issued_twice() {
        let five = Config { highest_counter: 3, ..FIVE_NODES };
        assert_controls(&[
            (REISSUES, Fault::RenewalReturnsHighest, TOKENS_ARE_UNIQUE, 15),
            (five, Fault::RenewalReturnsHighest, TOKENS_ARE_UNIQUE, 18),
            (five, Fault::ReissueIgnoresRejectedSeal, TOKENS_ARE_UNIQUE, 13),
        ]);
    }
}

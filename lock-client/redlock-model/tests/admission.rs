//! Nodes that restart, lose their locks and counters, and are admitted again.

use redlock_model::{
    Config, Rounds,
    properties::{
        Situation::{AdmittedAgain, SealNeeded, TwoLeases},
        TOKENS_ARE_UNIQUE,
    },
    protocol::{AdmissionRule, Protocol},
};

use super::{assert_holds, assert_violates};

/// Two clients, and one restart at any moment.
const RESTART: Config = Config { highest_initial_counter: 0, restarts: 1, ..Config::TWO_CLIENTS };

fn with_admission(admission: AdmissionRule) -> Config {
    Config { protocol: Protocol { admission, ..Protocol::AS_BUILT }, ..RESTART }
}

/// 220 041 states; 2 s on one core.
#[test]
fn tokens_are_unique_and_grow_across_a_restart() {
    assert_holds(RESTART, 220_000, &[TwoLeases, SealNeeded, AdmittedAgain]);
}

#[test]
fn with_an_admission_that_copies_before_it_waits_a_token_is_issued_twice() {
    assert_violates(with_admission(AdmissionRule::CopiesThenWaits), TOKENS_ARE_UNIQUE, 14);
}

/// A restart that may bring back an old copy. Leases join nodes again that were admitted. Acquires
/// take one step.
const OLD_COPY: Config = Config {
    highest_counter: 2,
    rounds: Rounds::AtomicAcquires,
    renewals: true,
    joins: true,
    old_copies: true,
    ..RESTART
};

/// 291 569 states; 5 s on one core.
#[test]
fn tokens_are_unique_and_grow_although_a_node_comes_back_with_an_old_copy() {
    assert_holds(OLD_COPY, 291_000, &[TwoLeases, AdmittedAgain]);
}

#[test]
fn with_an_old_copy_that_votes_a_token_is_issued_twice() {
    let protocol = Protocol { admission: AdmissionRule::NoAdmission, ..Protocol::AS_BUILT };
    assert_violates(Config { protocol, ..OLD_COPY }, TOKENS_ARE_UNIQUE, 3);
}

#[test]
fn without_an_admission_a_token_is_issued_twice() {
    assert_violates(with_admission(AdmissionRule::NoAdmission), TOKENS_ARE_UNIQUE, 11);
}

/// Five nodes, and one restart. Leases are renewed, and join nodes again that were admitted. Acquires
/// take one step.
const FIVE_NODES: Config = Config {
    nodes: 5,
    highest_counter: 2,
    rounds: Rounds::AtomicAcquires,
    renewals: true,
    joins: true,
    ..RESTART
};

/// 182 778 states; 4 s on one core.
#[test]
fn tokens_are_unique_and_grow_on_five_nodes_across_a_restart() {
    assert_holds(FIVE_NODES, 182_000, &[TwoLeases, AdmittedAgain]);
}

#[test]
fn on_five_nodes_without_an_admission_a_token_is_issued_twice() {
    let protocol = Protocol { admission: AdmissionRule::NoAdmission, ..Protocol::AS_BUILT };
    assert_violates(Config { protocol, ..FIVE_NODES }, TOKENS_ARE_UNIQUE, 3);
}

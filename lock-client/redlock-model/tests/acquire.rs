//! Grants, seals, expiry and releases.

use redlock_model::{
    Config, Fault,
    properties::{
        Situation::{LateGrant, SealNeeded, TwoLeases},
        TOKENS_ARE_UNIQUE,
    },
};

use super::{assert_controls, assert_holds};

/// Two clients, whose requests for grants come any number of times, at any time.
const LATE_GRANTS: Config = Config { late_grants: true, ..Config::TWO_CLIENTS };

#[test]
fn with_each_broken_rule_of_a_round_a_token_is_issued_twice() {
    assert_controls(&[
        (LATE_GRANTS, Fault::HigherGrantCounts, TOKENS_ARE_UNIQUE, 14),
        (LATE_GRANTS, Fault::NoSeal, TOKENS_ARE_UNIQUE, 11),
        (LATE_GRANTS, Fault::SealComparesNothing, TOKENS_ARE_UNIQUE, 12),
        // A holder of its own for each round is not enough: a grant may come twice, and the seal late.
        (LATE_GRANTS, Fault::SealComparesHolder, TOKENS_ARE_UNIQUE, 14),
    ]);
}

mod at_length {
    use super::*;

    #[test]
    fn tokens_are_unique_and_grow_with_late_and_repeated_grants() {
        assert_holds(LATE_GRANTS, 459_000, &[TwoLeases, SealNeeded, LateGrant]);
    }

    /// `make model` has higher counters. Late grants would add too many: the test above has
    /// them.
    #[test]
    fn tokens_are_unique_and_grow_with_three_clients() {
        let counters =
            Config { highest_counter: 2, highest_initial_counter: 0, ..Config::TWO_CLIENTS };
        assert_holds(Config { clients: 3, ..counters }, 430_000, &[TwoLeases, SealNeeded]);
    }
}

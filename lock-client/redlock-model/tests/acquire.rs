//! Grants, seals, expiry and releases.

use redlock_model::{
    Config, Delivery,
    properties::{
        Situation::{LateGrant, SealNeeded, TwoLeases},
        TOKENS_ARE_UNIQUE,
    },
    protocol::{GrantRule, Protocol, SealRule},
};

use super::{assert_holds, assert_violates};

/// Two clients, whose requests for grants come any number of times, at any time.
const LATE_GRANTS: Config = Config { grant_requests: Delivery::Anytime, ..Config::TWO_CLIENTS };

fn with_seal(seal: SealRule) -> Config {
    Config { protocol: Protocol { seal, ..Protocol::AS_BUILT }, ..LATE_GRANTS }
}

#[test]
fn with_a_grant_above_the_token_that_counts_a_token_is_issued_twice() {
    let protocol = Protocol { grant: GrantRule::AboveTheToken, ..Protocol::AS_BUILT };
    assert_violates(Config { protocol, ..LATE_GRANTS }, TOKENS_ARE_UNIQUE, 14);
}

#[test]
fn without_a_seal_a_token_is_issued_twice() {
    assert_violates(with_seal(SealRule::NoSeal), TOKENS_ARE_UNIQUE, 11);
}

#[test]
fn with_a_seal_that_compares_nothing_a_token_is_issued_twice() {
    assert_violates(with_seal(SealRule::ComparesNothing), TOKENS_ARE_UNIQUE, 12);
}

/// A holder of its own for each round is not enough: a grant may come twice, and the seal late.
#[test]
fn with_a_seal_that_compares_the_holder_only_a_token_is_issued_twice() {
    assert_violates(with_seal(SealRule::ComparesHolderOnly), TOKENS_ARE_UNIQUE, 14);
}

mod at_length {
    use super::*;

    /// 461 412 states; 4 s on one core.
    #[test]
    fn tokens_are_unique_and_grow_with_late_and_repeated_grants() {
        assert_holds(LATE_GRANTS, 460_000, &[TwoLeases, SealNeeded, LateGrant]);
    }

    /// 434 040 states; `make model` has higher counters. Late grants would add too many: the test above has
    /// them.
    #[test]
    fn tokens_are_unique_and_grow_with_three_clients() {
        let counters =
            Config { highest_counter: 2, highest_initial_counter: 0, ..Config::TWO_CLIENTS };
        assert_holds(Config { clients: 3, ..counters }, 430_000, &[TwoLeases, SealNeeded]);
    }
}

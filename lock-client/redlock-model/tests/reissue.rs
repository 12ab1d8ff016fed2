//! Reissues and renewals.

use redlock_model::{
    Config, Delivery,
    properties::{
        Situation::{LateGrant, Reissued, RenewedWithNewToken, SealNeeded, TwoLeases},
        TOKENS_ARE_UNIQUE,
    },
    protocol::{Protocol, ReissueRule},
};

use super::{assert_holds, assert_violates};

/// Two clients with one reissue each, which a renewal may find complete.
const REISSUES: Config =
    Config { highest_initial_counter: 0, reissues: 1, renewals: true, ..Config::TWO_CLIENTS };

/// 1 613 370 states; 13 s on one core.
#[test]
fn reissued_tokens_are_unique_and_grow() {
    let config = Config { grant_requests: Delivery::Anytime, ..REISSUES };
    let situations = [TwoLeases, SealNeeded, LateGrant, Reissued, RenewedWithNewToken];
    assert_holds(config, 1_600_000, &situations);
}

#[test]
fn with_a_reissue_that_seals_no_node_a_token_is_issued_twice() {
    let protocol = Protocol { reissue: ReissueRule::RaisesOnly, ..Protocol::AS_BUILT };
    assert_violates(Config { protocol, ..REISSUES }, TOKENS_ARE_UNIQUE, 19);
}

//! Reissues and renewals.

use redlock_model::{
    Config,
    properties::{
        Situation::{Reissued, RenewedWithNewToken, SealNeeded, TwoLeases},
        TOKENS_ARE_UNIQUE,
    },
    protocol::{Protocol, ReissueRule},
};

use super::{assert_holds, assert_violates};

/// Two clients with one reissue each, which a renewal may find complete.
const REISSUES: Config =
    Config { highest_initial_counter: 0, reissues: 1, renewals: true, ..Config::TWO_CLIENTS };

/// 3 238 644 states; 36 s on one core. With repeated grants, it has 5 511 081: see `make model`.
#[test]
fn reissued_tokens_are_unique_and_grow() {
    let situations = [TwoLeases, SealNeeded, Reissued, RenewedWithNewToken];
    assert_holds(REISSUES, 3_200_000, &situations);
}

#[test]
fn with_a_reissue_that_seals_no_node_a_token_is_issued_twice() {
    let protocol = Protocol { reissue: ReissueRule::RaisesOnly, ..Protocol::AS_BUILT };
    assert_violates(Config { protocol, ..REISSUES }, TOKENS_ARE_UNIQUE, 19);
}

//! The fenced storage, where clients read, modify and write.
//!
//! Rounds and reissues take one step here. Claims and writes may reach the storage at any time.

use redlock_model::{
    Checked, Config, Rounds,
    properties::{
        NO_WRITE_IS_LOST,
        Situation::{Reissued, TwoLeases},
        TOKENS_ARE_UNIQUE,
    },
    protocol::{FenceRule, Protocol, ReissueRule},
};

use super::{assert_holds, assert_violates};

const STORAGE: Config = Config {
    rounds: Rounds::Atomic,
    highest_counter: 4,
    reissues: 1,
    storage: true,
    ..Config::TWO_CLIENTS
};

/// More than Redlock withstands: a node that lost its counter votes on, so a token is issued twice.
const LOST_COUNTER: Config = Config { losses: 1, checked: Checked::WritesOnly, ..STORAGE };

#[test]
fn with_a_lost_counter_a_token_is_issued_twice() {
    let config = Config { checked: Checked::TokensAndWrites, ..LOST_COUNTER };
    assert_violates(config, TOKENS_ARE_UNIQUE, 3);
}

#[test]
fn with_a_lost_counter_and_a_fence_that_compares_tokens_only_a_write_is_lost() {
    let protocol = Protocol { fence: FenceRule::ComparesTokenOnly, ..Protocol::AS_BUILT };
    assert_violates(Config { protocol, ..LOST_COUNTER }, NO_WRITE_IS_LOST, 7);
}

/// The storage accepted the claim, and rejects only the write after it.
#[test]
fn with_a_lost_counter_and_a_reissue_that_resends_a_rejected_write_a_write_is_lost() {
    let protocol = Protocol { reissue: ReissueRule::ResendsRejectedWrite, ..Protocol::AS_BUILT };
    assert_violates(Config { protocol, ..LOST_COUNTER }, NO_WRITE_IS_LOST, 8);
}

mod at_length {
    use super::*;

    /// 342 837 states; 2 s on one core.
    #[test]
    fn no_accepted_write_is_lost() {
        let config = Config { clients: 3, highest_counter: 5, reissues: 2, ..STORAGE };
        assert_holds(config, 342_000, &[TwoLeases, Reissued]);
    }

    /// 383 504 states; 4 s on one core.
    #[test]
    fn no_accepted_write_is_lost_even_if_a_counter_is() {
        let config = Config { clients: 3, ..LOST_COUNTER };
        assert_holds(config, 383_000, &[TwoLeases, Reissued]);
    }
}

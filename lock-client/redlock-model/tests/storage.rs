//! The fenced storage, where clients read, modify and write.
//!
//! Rounds and reissues take one step here. Claims and writes may reach the storage at any time.

use redlock_model::{
    Config, Explore, Fault, Rounds,
    properties::{
        NO_WRITE_IS_LOST,
        Situation::{Reissued, TwoLeases},
        TOKENS_ARE_UNIQUE,
    },
};

use super::{assert_controls, assert_holds};

const STORAGE: Config = Config {
    rounds: Rounds::Atomic,
    highest_counter: 4,
    reissues: 1,
    storage: true,
    ..Config::TWO_CLIENTS
};

/// More than Redlock withstands: a node that lost its counter votes on, so a token is issued twice.
const LOST_COUNTER: Config = Config { losses: 1, only_writes: true, ..STORAGE };

#[test]
fn with_a_lost_counter_a_token_is_issued_twice() {
    let report = Config { only_writes: false, ..LOST_COUNTER }.explore(1);
    assert!(report.violated.contains(&TOKENS_ARE_UNIQUE) && report.steps.len() == 3, "{report}");
}

#[test]
fn with_a_lost_counter_and_each_broken_rule_of_the_storage_a_write_is_lost() {
    assert_controls(&[
        (LOST_COUNTER, Fault::FenceComparesToken, NO_WRITE_IS_LOST, 7),
        // The storage accepted the claim, and rejects only the write after it.
        (LOST_COUNTER, Fault::RejectedWriteIsResent, NO_WRITE_IS_LOST, 8),
    ]);
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

//! The fenced storage, where clients read, modify and write.

use redlock_model::storage::{
    Config, Fault, NO_WRITE_IS_LOST,
    Situation::{TokenIssuedTwice, WrittenByTwo},
};

use super::{assert_controls, assert_holds};

const STORAGE: Config = Config { clients: 3, highest_token: 5, fault: None };

#[test]
fn no_accepted_write_is_lost_whatever_tokens_are_issued() {
    assert_holds(STORAGE, 1_543_000, &[TokenIssuedTwice, WrittenByTwo]);
}

#[test]
fn with_each_broken_rule_of_the_storage_a_write_is_lost() {
    assert_controls(&[
        (STORAGE, Fault::FenceComparesToken, NO_WRITE_IS_LOST, 6),
        // The storage accepted the claim, and rejects only the write after it.
        (STORAGE, Fault::RejectedWriteIsResent, NO_WRITE_IS_LOST, 7),
    ]);
}

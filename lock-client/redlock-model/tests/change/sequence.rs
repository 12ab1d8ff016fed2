//! Changes that follow each other.

use redlock_model::{
    change::{
        Change, Config, LEASES_EXCLUDE, MissedRule, Rules,
        Situation::{DecidedAgain, HeldByNewNode, LateMemberClosed},
        WaitRule,
    },
    properties::TOKENS_ARE_UNIQUE,
};

use super::{ALONE, REPLACEMENT, assert_holds, assert_violates};

/// Node 3 replaces node 2, which may never learn of it. Later node 2 replaces node 1.
const COMES_BACK: &[Change] = &[
    Change { base: 0, members: &[0, 1, 2] },
    Change { base: 0, members: &[0, 1, 3] },
    Change { base: 1, members: &[0, 2, 3] },
];

/// 511 930 states; 2 s on one core.
#[test]
fn tokens_are_unique_and_grow_when_a_removed_node_comes_back() {
    let config = Config { changes: COMES_BACK, proposals: &[1, 2], ..REPLACEMENT };
    assert_holds(config, 510_000, &[HeldByNewNode, DecidedAgain]);
}

/// A change that any member may miss, and then node 3 replaces node 1.
const MISSED: &[Change] = &[
    Change { base: 0, members: &[0, 1, 2] },
    Change { base: 0, members: &[0, 1, 2] },
    Change { base: 1, members: &[0, 2, 3] },
];

/// 271 306 states; 1 s on one core.
#[test]
fn tokens_are_unique_and_grow_when_a_member_misses_an_epoch() {
    let config = Config { changes: MISSED, proposals: &[1, 2], ..REPLACEMENT };
    assert_holds(config, 270_000, &[HeldByNewNode, DecidedAgain, LateMemberClosed]);
}

/// Node 2 comes back, but is not admitted before the members change once more.
const COMES_BACK_LATE: Config = Config {
    changes: &[
        Change { base: 0, members: &[0, 1, 2] },
        Change { base: 0, members: &[0, 1, 3] },
        Change { base: 1, members: &[0, 2, 3] },
        Change { base: 2, members: &[0, 2, 3] },
    ],
    proposals: &[1, 2, 3],
    early_expiry: false,
    ..REPLACEMENT
};

/// Node 2 was a member before the last change. But it did not vote, so the change before that was
/// not waited for.
#[test]
fn with_a_node_that_missed_an_epoch_and_does_not_wait_leases_overlap() {
    let rules = Rules { wait: WaitRule::NotIfMissed, ..ALONE };
    assert_violates(Config { rules, ..COMES_BACK_LATE }, LEASES_EXCLUDE, 25);
}

mod at_length {
    use super::*;

    /// 685 312 states; 3 s on one core.
    #[test]
    fn tokens_are_unique_and_grow_when_a_node_comes_back_late() {
        assert_holds(COMES_BACK_LATE, 680_000, &[HeldByNewNode, DecidedAgain]);
    }

    /// Node 2 has the counters from before it was removed. It takes itself for a member that missed an
    /// epoch, because it was one before the last change.
    #[test]
    fn with_a_node_that_closes_although_it_missed_an_epoch_a_token_is_issued_twice() {
        let rules = Rules { missed: MissedRule::ClosesDirectly, ..ALONE };
        let config = Config { early_expiry: true, rules, ..COMES_BACK_LATE };
        assert_violates(config, TOKENS_ARE_UNIQUE, 22);
    }
}

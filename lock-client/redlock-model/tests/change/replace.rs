//! One operator replaces a member, or adds two.

use redlock_model::{
    change::{
        AdmissionRule, Change, Config, CopyRule, DecisionRule, LEASES_EXCLUDE, Rules,
        Situation::{
            AdmittedAfterDecision, AdmittedDuringBallot, Decided, HeldByNewNode, LateMemberClosed,
            NewNodeVotes, RenewedAfterDecision,
        },
        SourceRule, VoteRule, WaitRule,
    },
    properties::TOKENS_ARE_UNIQUE,
};

use super::{ALONE, REPLACEMENT, assert_holds, assert_violates};

/// Locks expire only with their lease.
const EXCLUSIVE: Config = Config { early_expiry: false, ..REPLACEMENT };

fn with(rules: Rules) -> Config {
    Config { rules, ..REPLACEMENT }
}

/// 102 460 states; half a second on one core.
#[test]
fn leases_exclude_each_other_across_the_change() {
    let config = Config { renewals: true, ..EXCLUSIVE };
    assert_holds(config, 100_000, &[HeldByNewNode, RenewedAfterDecision]);
}

/// 611 716 states; 2 s on one core.
#[test]
fn leases_exclude_each_other_although_a_node_comes_back_with_an_old_copy() {
    let config = Config { restarts: 1, old_copies: true, ..EXCLUSIVE };
    assert_holds(config, 600_000, &[HeldByNewNode, AdmittedDuringBallot, AdmittedAfterDecision]);
}

/// 305 543 states; 1 s on one core.
#[test]
fn tokens_are_unique_and_grow_with_releases_that_ignore_epochs() {
    assert_holds(Config { releases: true, ..REPLACEMENT }, 300_000, &[HeldByNewNode]);
}

/// Nodes 3 and 4 are added.
const GROWTH: Config = Config {
    changes: &[
        Change { base: 0, members: &[0, 1, 2] },
        Change { base: 0, members: &[0, 1, 2, 3, 4] },
    ],
    proposals: &[1],
    ..REPLACEMENT
};

/// 314 847 states; 1 s on one core.
#[test]
fn tokens_are_unique_and_grow_when_the_cluster_grows() {
    assert_holds(GROWTH, 310_000, &[HeldByNewNode, LateMemberClosed]);
}

/// Nodes 1 and 2 with the old list, and nodes 0 and 3 with the new one: no node is in both.
#[test]
fn with_members_that_do_not_close_a_token_is_issued_twice() {
    let rules = Rules { vote: VoteRule::IgnoresChange, ..ALONE };
    assert_violates(with(rules), TOKENS_ARE_UNIQUE, 11);
}

/// Nodes 0 and 1, which is removed, and nodes 2 and 3.
#[test]
fn with_a_vote_of_the_removed_node_a_token_is_issued_twice() {
    let rules = Rules { vote: VoteRule::CountsRemoved, ..ALONE };
    assert_violates(with(rules), TOKENS_ARE_UNIQUE, 12);
}

#[test]
fn with_fewer_members_than_before_a_token_is_issued_twice() {
    let changes =
        &[Change { base: 0, members: &[0, 1, 2, 3, 4] }, Change { base: 0, members: &[0, 1, 2] }];
    let config = Config { changes, proposals: &[1], ..REPLACEMENT };
    assert_violates(config, TOKENS_ARE_UNIQUE, 6);
}

#[test]
fn with_a_copy_from_fewer_than_a_majority_a_token_is_issued_twice() {
    let rules = Rules { sources: SourceRule::FewerThanMajority, ..ALONE };
    assert_violates(with(rules), TOKENS_ARE_UNIQUE, 11);
}

/// The new node restarts between two copies.
#[test]
fn with_an_admission_of_any_process_a_token_is_issued_twice() {
    let rules = Rules { admission: AdmissionRule::IgnoresProcess, ..ALONE };
    assert_violates(Config { restarts: 1, ..with(rules) }, TOKENS_ARE_UNIQUE, 13);
}

#[test]
fn without_the_wait_leases_overlap() {
    let rules = Rules { wait: WaitRule::NoWait, ..ALONE };
    assert_violates(Config { rules, ..EXCLUSIVE }, LEASES_EXCLUDE, 11);
}

#[test]
fn with_a_wait_from_before_the_decision_leases_overlap() {
    let rules = Rules { wait: WaitRule::FromProposal, ..ALONE };
    assert_violates(Config { rules, ..EXCLUSIVE }, LEASES_EXCLUDE, 11);
}

#[test]
fn with_a_decision_by_fewer_than_a_majority_leases_overlap() {
    let rules = Rules { decision: DecisionRule::FewerThanMajority, ..ALONE };
    assert_violates(Config { rules, ..EXCLUSIVE }, LEASES_EXCLUDE, 11);
}

/// The wait protects leases, not tokens: nothing is sealed any more at nodes that have closed.
/// 141 132 states; half a second on one core.
#[test]
fn tokens_are_unique_and_grow_even_without_the_wait() {
    let rules = Rules { wait: WaitRule::NoWait, ..ALONE };
    let config = Config { atomic_acquires: false, highest_counter: 1, ..with(rules) };
    assert_holds(config, 140_000, &[HeldByNewNode]);
}

/// Without the wait, it does matter that the nodes have closed.
#[test]
fn without_the_wait_and_with_a_copy_from_open_members_a_token_is_issued_twice() {
    let rules = Rules { wait: WaitRule::NoWait, sources: SourceRule::AnyChange, ..ALONE };
    let config = Config { atomic_acquires: false, highest_counter: 1, ..with(rules) };
    assert_violates(config, TOKENS_ARE_UNIQUE, 17);
}

mod at_length {
    use super::*;

    /// 2 088 239 states; 8 s on one core.
    #[test]
    fn tokens_are_unique_and_grow_with_rounds_that_overlap_the_change() {
        let config = Config { atomic_acquires: false, ..REPLACEMENT };
        assert_holds(config, 2_000_000, &[Decided, NewNodeVotes, HeldByNewNode, LateMemberClosed]);
    }

    /// 996 606 states; 4 s on one core.
    #[test]
    fn tokens_are_unique_and_grow_although_a_node_restarts_during_the_change() {
        let config = Config { restarts: 1, ..REPLACEMENT };
        assert_holds(
            config,
            990_000,
            &[HeldByNewNode, AdmittedDuringBallot, AdmittedAfterDecision],
        );
    }

    /// 1 329 939 states; 6 s on one core.
    #[test]
    fn no_lease_outlives_a_higher_token_across_the_change() {
        let config = Config { renewals: true, ..REPLACEMENT };
        assert_holds(config, 1_300_000, &[HeldByNewNode, RenewedAfterDecision]);
    }

    /// A member that restarts is admitted into the old epoch after that has been closed.
    #[test]
    fn with_a_copy_from_voters_under_any_change_a_token_is_issued_twice() {
        let rules = Rules { sources: SourceRule::AnyChange, ..ALONE };
        assert_violates(Config { restarts: 1, ..with(rules) }, TOKENS_ARE_UNIQUE, 15);
    }

    #[test]
    fn with_a_copy_before_the_close_a_token_is_issued_twice() {
        let rules = Rules { copy: CopyRule::BeforeTheClose, ..ALONE };
        assert_violates(with(rules), TOKENS_ARE_UNIQUE, 12);
    }
}

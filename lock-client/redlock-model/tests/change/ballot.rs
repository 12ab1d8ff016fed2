//! Two operators with different changes, and ballots that decide between them.

use redlock_model::change::{
    AdmissionRule, CloseRule, Config, DecisionRule, EPOCHS_ARE_DECIDED_ONCE, PromiseRule, Rules,
    Situation::{
        AdmittedAfterDecision, AdmittedDuringBallot, Decided, FinishedByOther, HeldByNewNode,
        LateMemberClosed, NewNodeVotes, RenewedAfterDecision,
    },
    SourceRule,
};

use super::{REPLACEMENT, assert_holds, assert_violates};

/// Two operators with two ballots each. There is one restart, and no client.
const BALLOTS: Config = Config {
    proposals: &[1, 2],
    ballots: [2, 2, 0],
    clients: 0,
    restarts: 1,
    rules: Rules::PROTOCOL,
    ..REPLACEMENT
};

/// The same without a restart.
const WITHOUT_RESTART: Config = Config { restarts: 0, ..BALLOTS };

/// Broken rules, with no more ballots than they take.
fn with(rules: Rules, ballots: [u8; 2]) -> Config {
    Config { rules, ballots: [ballots[0], ballots[1], 0], ..BALLOTS }
}

/// 499 207 and 399 328 states; 3 s on one core. With two ballots each, it has 1 773 609: see
/// `make model`.
#[test]
fn an_epoch_is_decided_once_across_a_restart() {
    let situations = [
        Decided,
        FinishedByOther,
        LateMemberClosed,
        NewNodeVotes,
        AdmittedDuringBallot,
        AdmittedAfterDecision,
    ];
    assert_holds(with(Rules::PROTOCOL, [1, 2]), 490_000, &situations);
    assert_holds(with(Rules::PROTOCOL, [2, 1]), 390_000, &situations);
}

#[test]
fn without_a_promise_an_epoch_is_decided_twice() {
    let rules = Rules { promise: PromiseRule::NoPromise, ..Rules::PROTOCOL };
    assert_violates(Config { rules, ..WITHOUT_RESTART }, EPOCHS_ARE_DECIDED_ONCE, 10);
}

#[test]
fn with_a_proposer_that_adopts_nothing_an_epoch_is_decided_twice() {
    let rules = Rules { promise: PromiseRule::ProposesItsOwn, ..Rules::PROTOCOL };
    assert_violates(Config { rules, ..WITHOUT_RESTART }, EPOCHS_ARE_DECIDED_ONCE, 14);
}

/// The restarted member's promise is void. Yet a proposer counts it, and closes another member.
/// That outdated proposal has a higher ballot than the decided one, and a third ballot adopts it.
#[test]
fn with_promises_that_are_not_read_again_an_epoch_is_decided_twice() {
    let rules = Rules { promise: PromiseRule::NotReadAgain, ..Rules::PROTOCOL };
    assert_violates(with(rules, [1, 2]), EPOCHS_ARE_DECIDED_ONCE, 23);
}

#[test]
fn with_a_decision_by_fewer_than_a_majority_an_epoch_is_decided_twice() {
    let rules = Rules { decision: DecisionRule::FewerThanMajority, ..Rules::PROTOCOL };
    assert_violates(Config { rules, ..WITHOUT_RESTART }, EPOCHS_ARE_DECIDED_ONCE, 12);
}

/// A closed member restarts, and is admitted into the old epoch, before the next one closes.
#[test]
fn with_closed_members_that_are_not_read_again_an_epoch_is_decided_twice() {
    let rules = Rules { decision: DecisionRule::NotReadAgain, ..Rules::PROTOCOL };
    assert_violates(with(rules, [1, 1]), EPOCHS_ARE_DECIDED_ONCE, 18);
}

/// One member holds the change under ballot 1, and another under ballot 3. The third holds another
/// change under ballot 2, which a fourth ballot may find and adopt.
#[test]
fn with_a_decision_under_any_ballot_an_epoch_is_decided_twice() {
    let rules = Rules { decision: DecisionRule::AnyBallot, ..Rules::PROTOCOL };
    assert_violates(Config { rules, ..WITHOUT_RESTART }, EPOCHS_ARE_DECIDED_ONCE, 22);
}

#[test]
fn with_a_restarted_member_that_forgot_its_promise_an_epoch_is_decided_twice() {
    let rules = Rules { admission: AdmissionRule::ForgetsPromise, ..Rules::PROTOCOL };
    assert_violates(with(rules, [1, 2]), EPOCHS_ARE_DECIDED_ONCE, 23);
}

#[test]
fn with_a_restarted_member_that_forgot_its_ballot_an_epoch_is_decided_twice() {
    let rules = Rules { admission: AdmissionRule::ForgetsBallot, ..Rules::PROTOCOL };
    assert_violates(with(rules, [2, 1]), EPOCHS_ARE_DECIDED_ONCE, 28);
}

#[test]
fn with_an_admission_from_fewer_than_a_majority_an_epoch_is_decided_twice() {
    let rules = Rules { sources: SourceRule::FewerThanMajority, ..Rules::PROTOCOL };
    assert_violates(with(rules, [1, 1]), EPOCHS_ARE_DECIDED_ONCE, 17);
}

#[test]
fn with_an_admission_from_voters_under_any_change_an_epoch_is_decided_twice() {
    let rules = Rules { sources: SourceRule::AnyChange, ..Rules::PROTOCOL };
    assert_violates(with(rules, [1, 1]), EPOCHS_ARE_DECIDED_ONCE, 18);
}

mod at_length {
    use super::*;

    /// 1 424 624 states; 5 s on one core.
    #[test]
    fn tokens_are_unique_and_grow_while_two_operators_change_members() {
        let config = Config { ballots: [1, 1, 0], clients: 2, ..WITHOUT_RESTART };
        assert_holds(config, 1_400_000, &[Decided, LateMemberClosed, HeldByNewNode]);
    }

    /// A lease may leave a change that is not decided for its rival. 2 483 457 states; 9 s on one core.
    #[test]
    fn leases_exclude_each_other_while_two_operators_change_members() {
        let config = Config { clients: 2, renewals: true, early_expiry: false, ..WITHOUT_RESTART };
        let config = Config { ballots: [1, 1, 0], ..config };
        assert_holds(
            config,
            2_400_000,
            &[Decided, LateMemberClosed, HeldByNewNode, RenewedAfterDecision],
        );
    }

    /// Promises that are read again and restored are enough: the close need not compare the process,
    /// nor whether there was a promise. 822 854 states; 2 s on one core.
    #[test]
    fn an_epoch_is_decided_once_whichever_nodes_close() {
        let rules = Rules { close: CloseRule::AnyNode, ..Rules::PROTOCOL };
        assert_holds(with(rules, [1, 2]), 820_000, &[FinishedByOther, AdmittedDuringBallot]);
    }
}

//! There is always a way to acquire the lock again.

use redlock_model::{CheckLiveness, Config, Explore, Fault, takeover};

/// Two clients. One of them may leave anything behind before the other starts.
const LATE_GRANTS: Config =
    Config { late_grants: true, highest_initial_counter: 0, ..Config::TWO_CLIENTS };

const WITHOUT_EXPIRY: Config = Config { expiry: false, ..LATE_GRANTS };

/// Asserts that no state is stuck. The model must have at least so many states, and so many that
/// require a way to acquire.
#[track_caller]
fn assert_live(config: impl CheckLiveness, states: usize, required: usize) {
    let report = config.check_liveness();
    println!("{report:?}");
    assert_eq!(report.stuck, 0, "{report:?}");
    assert!(report.states >= states, "only {} states", report.states);
    assert!(report.required >= required, "required in {} states only", report.required);
}

/// Releases are enough, because they go to all nodes.
#[test]
fn a_client_can_always_acquire_again_without_expiry() {
    assert_live(WITHOUT_EXPIRY, 5_500, 110);
}

/// A node keeps the lock for ever if the client never received its grant.
#[test]
fn without_expiry_no_client_can_acquire_after_a_release_to_known_granters_only() {
    let report = WITHOUT_EXPIRY.with_fault(Fault::ReleaseToKnownGranters).check_liveness();
    println!("{report:?}");
    assert!(report.stuck > 0, "{report:?}");
}

/// One client, whose locks expire at any moment.
const TAKEOVER: takeover::Config = takeover::Config { clients: 1, ..takeover::Config::ONE_START };

/// The old process may answer nothing any more, and an operator may stop at any step.
#[test]
fn a_client_can_always_acquire_on_a_process_that_takes_a_seat() {
    assert_live(TAKEOVER, 1_900, 42);
}

/// Two operators give one seat to two processes. Each has prepared its own, and the first has closed a member.
const DISAGREE: takeover::Config = takeover::Config {
    starts: 2,
    operators: 2,
    script: &[
        "Start(0, None)",
        "Operator(0, Look(14))",
        "Operator(0, Ask(3, Prepare",
        "Operator(0, Look(14))",
        "Start(0, None)",
        "Operator(1, Look(22))",
        "Operator(1, Ask(4, Prepare",
        "Operator(1, Look(22))",
        "Operator(0, Ask(1, Close",
    ],
    ..TAKEOVER
};

#[test]
fn a_client_can_always_acquire_although_two_operators_disagree() {
    assert_live(DISAGREE, 14_000, 420);
}

#[test]
fn if_no_term_can_begin_no_client_can_acquire_on_a_process_without_a_seat() {
    let report = takeover::Config { highest_term: 1, ..TAKEOVER }.check_liveness();
    assert!(report.stuck > 0 && report.stuck == report.required, "{report:?}");
}

/// Two operators give the first of five seats to two processes, and each has closed two of the members that
/// stay: neither roster can be decided any more.
pub(super) const SPLIT_OF_FIVE: takeover::Config = takeover::Config {
    seats: 5,
    starts: 2,
    operators: 2,
    // What follows an acquire is not explored.
    highest_counter: 0,
    script: &[
        "Start(0, None)",
        "Operator(0, Look(62))",
        "Operator(0, Ask(5, Prepare",
        "Operator(0, Look(62))",
        "Start(0, None)",
        "Operator(1, Look(94))",
        "Operator(1, Ask(6, Prepare",
        // It does not see the first member, and begins with the second one.
        "Operator(1, Look(92))",
        "Operator(0, Ask(1, Close",
        "Operator(1, Ask(2, Close",
        "Operator(0, Look(58))",
        "Operator(0, Ask(3, Close",
        "Operator(1, Look(84))",
        "Operator(1, Ask(4, Close",
    ],
    ..TAKEOVER
};

#[test]
fn if_no_roster_gives_way_no_client_can_acquire_after_a_split() {
    let report = SPLIT_OF_FIVE.with_fault(takeover::Fault::NoRosterGivesWay).check_liveness();
    println!("{report:?}");
    assert!(report.stuck > 0 && report.stuck == report.required, "{report:?}");
}

mod at_length {
    use super::*;

    #[test]
    fn a_client_can_always_acquire_again() {
        assert_live(LATE_GRANTS, 453_000, 1_040);
    }

    #[test]
    fn a_client_can_always_acquire_although_two_rosters_have_split_five_seats() {
        assert_live(SPLIT_OF_FIVE, 55_000, 55_000);
    }
}

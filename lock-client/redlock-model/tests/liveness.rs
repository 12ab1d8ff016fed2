//! There is always a way to acquire the lock again.

use redlock_model::{
    Config, Delivery, check_liveness,
    protocol::{ExpiryRule, Protocol, ReleaseRule},
};

/// Two clients. One of them may leave anything behind before the other starts.
const LATE_GRANTS: Config =
    Config { grant_requests: Delivery::Anytime, highest_initial_counter: 0, ..Config::TWO_CLIENTS };

const WITHOUT_EXPIRY: Protocol = Protocol { expiry: ExpiryRule::Never, ..Protocol::AS_BUILT };

/// Asserts that no state is stuck. The model must have at least so many states, and so many that
/// require a way to acquire.
#[track_caller]
fn assert_live(config: Config, states: usize, required: usize) {
    let report = check_liveness(config);
    println!("{report:?}");
    assert_eq!(report.stuck, 0, "{report:?}");
    assert!(report.states >= states, "only {} states", report.states);
    assert!(report.required >= required, "required in {} states only", report.required);
}

/// Releases are enough, because they go to all nodes.
#[test]
fn a_client_can_always_acquire_again_without_expiry() {
    assert_live(Config { protocol: WITHOUT_EXPIRY, ..LATE_GRANTS }, 5_600, 110);
}

/// A node keeps the lock for ever if the client never received its grant.
#[test]
fn without_expiry_no_client_can_acquire_after_a_release_to_known_granters_only() {
    let protocol = Protocol { release: ReleaseRule::ToKnownGranters, ..WITHOUT_EXPIRY };
    let report = check_liveness(Config { protocol, ..LATE_GRANTS });
    println!("{report:?}");
    assert!(report.stuck > 0, "{report:?}");
}

mod at_length {
    use super::*;

    /// 455 762 states; 6 s on one core.
    #[test]
    fn a_client_can_always_acquire_again() {
        assert_live(LATE_GRANTS, 455_000, 1_040);
    }
}

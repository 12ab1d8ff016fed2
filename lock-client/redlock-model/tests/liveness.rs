//! That there is always a way to acquire again.

use redlock_model::{
    Config, Grants, check_liveness,
    variant::{Expiry, Release, Variant},
};

/// Two clients, of which one may leave anything behind before the other begins.
const LATE_GRANTS: Config =
    Config { grants: Grants::Anytime, uneven_start: 0, ..Config::TWO_CLIENTS };

#[track_caller]
fn assert_live(config: Config, states: usize, demanded: usize) {
    let liveness = check_liveness(config);
    println!("{liveness:?}");
    assert_eq!(liveness.stuck, 0, "{liveness:?}");
    assert!(liveness.states >= states, "only {} states", liveness.states);
    assert!(liveness.demanded >= demanded, "demanded in {} states only", liveness.demanded);
}

/// 408 561 states; 6 s on one core.
#[test]
fn there_is_always_a_way_to_acquire_again() {
    assert_live(LATE_GRANTS, 400_000, 900);
}

/// 235 725 states; 3 s on one core.
#[test]
fn there_is_a_way_after_a_restart() {
    let config = Config { restarts: 1, uneven_start: 0, ..Config::TWO_CLIENTS };
    assert_live(config, 200_000, 900);
}

/// A release that goes to all nodes is enough, and so is expiry.
#[test]
fn there_is_none_without_expiry_if_a_release_goes_only_to_the_nodes_that_were_heard_of() {
    let without_expiry = Variant { expiry: Expiry::Never, ..Variant::AS_BUILT };
    assert_live(Config { variant: without_expiry, ..LATE_GRANTS }, 6_000, 150);

    let variant = Variant { release: Release::ToHeardOf, ..without_expiry };
    let liveness = check_liveness(Config { variant, ..LATE_GRANTS });
    assert!(liveness.stuck > 0, "{liveness:?}");
}

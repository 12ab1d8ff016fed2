//! Nodes that restart, and lose their locks and counters.

use redlock_model::{
    Config,
    properties::{ADMITTED, SEALED, TWO_LEASES, UNIQUE},
    variant::{Admission, Variant},
};

use super::{assert_breaks, assert_holds};

/// Two clients, and one restart at any moment.
const RESTART: Config = Config { uneven_start: 0, restarts: 1, ..Config::TWO_CLIENTS };

fn with_admission(admission: Admission) -> Config {
    Config { variant: Variant { admission, ..Variant::AS_BUILT }, ..RESTART }
}

/// 235 725 states; 2 s on one core.
#[test]
fn tokens_are_unique_and_grow_across_a_restart() {
    assert_holds(RESTART, 230_000, &[TWO_LEASES, SEALED, ADMITTED]);
}

#[test]
fn with_an_admission_that_copies_before_it_waits_a_token_is_told_twice() {
    assert_breaks(with_admission(Admission::CopiesThenWaits), UNIQUE, 14);
}

#[test]
fn without_an_admission_a_token_is_told_twice() {
    assert_breaks(with_admission(Admission::None), UNIQUE, 11);
}

//! The storage behind, where clients read, modify and write.
//!
//! Rounds and reissues take one step here. What happens at the storage may be as late as it likes.

use redlock_model::{
    Config, Judged, Rounds,
    properties::{NOTHING_LOST, REISSUED, TWO_LEASES},
    variant::{Admission, Binding, Reissue, Variant},
};

use super::{assert_breaks, assert_holds};

const STORAGE: Config = Config {
    rounds: Rounds::AtOnce,
    highest_counter: 4,
    reissues: 1,
    storage: true,
    ..Config::TWO_CLIENTS
};

/// Beyond what Redlock withstands: a node that lost its counter votes on, and tokens are told twice.
const LOST_COUNTER: Config = Config {
    restarts: 1,
    judged: Judged::Writes,
    variant: Variant { admission: Admission::None, ..Variant::AS_BUILT },
    ..STORAGE
};

/// 139 495 states; 2 s on one core.
#[test]
fn no_accepted_write_is_lost() {
    let config = Config { clients: 3, highest_counter: 5, reissues: 2, ..STORAGE };
    assert_holds(config, 130_000, &[TWO_LEASES, REISSUED]);
}

/// 375 865 states; 4 s on one core.
#[test]
fn no_accepted_write_is_lost_even_where_a_counter_is() {
    let config = Config { clients: 3, highest_counter: 3, ..LOST_COUNTER };
    assert_holds(config, 370_000, &[TWO_LEASES, REISSUED]);
}

#[test]
fn with_a_storage_that_binds_no_holder_a_write_is_lost_where_a_counter_is() {
    let variant = Variant { binding: Binding::None, ..LOST_COUNTER.variant };
    assert_breaks(Config { variant, ..LOST_COUNTER }, NOTHING_LOST, 7);
}

/// Though the claim had been accepted: what was refused was the write.
#[test]
fn with_a_reissue_that_sends_a_refused_write_again_a_write_is_lost_where_a_counter_is() {
    let variant = Variant { reissue: Reissue::Resends, ..LOST_COUNTER.variant };
    assert_breaks(Config { variant, ..LOST_COUNTER }, NOTHING_LOST, 8);
}

//! Reissues and renewals.

use redlock_model::{
    Config, Grants,
    properties::{LATE_GRANT, REISSUED, RENEWED, SEALED, TWO_LEASES, UNIQUE},
    variant::{Reissue, Variant},
};

use super::{assert_breaks, assert_holds};

/// Two clients with a reissue each, which a renewal may find done.
const REISSUES: Config =
    Config { uneven_start: 0, reissues: 1, renewals: true, ..Config::TWO_CLIENTS };

/// 1 613 370 states; 13 s on one core.
#[test]
fn reissued_tokens_are_unique_and_grow() {
    let config = Config { grants: Grants::Anytime, ..REISSUES };
    assert_holds(config, 1_600_000, &[TWO_LEASES, SEALED, LATE_GRANT, REISSUED, RENEWED]);
}

#[test]
fn with_a_reissue_that_is_not_sealed_a_token_is_told_twice() {
    let variant = Variant { reissue: Reissue::Unsealed, ..Variant::AS_BUILT };
    assert_breaks(Config { variant, ..REISSUES }, UNIQUE, 19);
}

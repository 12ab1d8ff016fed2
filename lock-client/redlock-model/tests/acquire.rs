//! Grants, seals, expiry and releases.

use redlock_model::{
    Config, Grants,
    properties::{LATE_GRANT, SEALED, TWO_LEASES, UNIQUE},
    variant::{Seal, Variant},
};

use super::{assert_breaks, assert_holds};

/// Two clients whose grants come as late and as often as they like.
const LATE_GRANTS: Config = Config { grants: Grants::Anytime, ..Config::TWO_CLIENTS };

fn with_seal(seal: Seal) -> Config {
    Config { variant: Variant { seal, ..Variant::AS_BUILT }, ..LATE_GRANTS }
}

/// 413 859 states; 3 s on one core.
#[test]
fn tokens_are_unique_and_grow_with_late_and_repeated_grants() {
    assert_holds(LATE_GRANTS, 400_000, &[TWO_LEASES, SEALED, LATE_GRANT]);
}

/// 3 835 831 states; 30 s on one core. Of grants that are late, the two clients above have enough.
#[test]
fn tokens_are_unique_and_grow_with_three_clients() {
    let config = Config { clients: 3, uneven_start: 0, ..Config::TWO_CLIENTS };
    assert_holds(config, 3_800_000, &[TWO_LEASES, SEALED]);
}

#[test]
fn without_a_seal_a_token_is_told_twice() {
    assert_breaks(with_seal(Seal::None), UNIQUE, 11);
}

#[test]
fn with_an_unchecked_seal_a_token_is_told_twice() {
    assert_breaks(with_seal(Seal::Unchecked), UNIQUE, 12);
}

/// Even though each round has a holder of its own: the grant may come twice, and the seal late.
#[test]
fn with_a_seal_that_compares_the_holder_alone_a_token_is_told_twice() {
    assert_breaks(with_seal(Seal::HolderAlone), UNIQUE, 14);
}

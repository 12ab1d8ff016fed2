//! Reissues and renewals.

use redlock_model::{
    Config, Rounds,
    properties::{
        Situation::{Reissued, RenewedWithNewToken, TwoLeases},
        TOKENS_ARE_UNIQUE,
    },
    protocol::{Protocol, ReissueRule, RenewalRule},
};

use super::{assert_holds, assert_violates};

/// Two clients with one reissue each, which a renewal may find half done. Acquires take one step.
const REISSUES: Config = Config {
    rounds: Rounds::AtomicAcquires,
    highest_counter: 4,
    highest_initial_counter: 1,
    reissues: 1,
    renewals: true,
    ..Config::TWO_CLIENTS
};

const FIVE_NODES: Config =
    Config { nodes: 5, highest_counter: 2, highest_initial_counter: 0, ..REISSUES };

const RAISES_ONLY: Protocol = Protocol { reissue: ReissueRule::RaisesOnly, ..Protocol::AS_BUILT };
const IGNORES_REJECTED_SEAL: Protocol =
    Protocol { reissue: ReissueRule::IgnoresRejectedSeal, ..Protocol::AS_BUILT };
const RETURNS_THE_HIGHEST: Protocol =
    Protocol { renewal: RenewalRule::ReturnsTheHighest, ..Protocol::AS_BUILT };

/// 38 410 states.
#[test]
fn reissued_tokens_are_unique_and_grow_on_five_nodes() {
    assert_holds(FIVE_NODES, 38_000, &[TwoLeases, Reissued]);
}

#[test]
fn with_a_reissue_that_seals_no_node_a_token_is_issued_twice() {
    assert_violates(Config { protocol: RAISES_ONLY, ..REISSUES }, TOKENS_ARE_UNIQUE, 10);
}

#[test]
fn with_a_reissue_that_ignores_its_rejected_seal_a_token_is_issued_twice() {
    assert_violates(Config { protocol: IGNORES_REJECTED_SEAL, ..REISSUES }, TOKENS_ARE_UNIQUE, 11);
}

/// Two processes have one handle. They reissue at once, while another client acquires. All counters start
/// at 0.
const SHARED: Config = Config {
    clients: 3,
    adopts: true,
    renewals: false,
    highest_counter: 3,
    highest_initial_counter: 0,
    ..REISSUES
};

#[test]
fn with_a_shared_lease_and_a_reissue_that_seals_no_node_a_token_is_issued_twice() {
    assert_violates(Config { protocol: RAISES_ONLY, ..SHARED }, TOKENS_ARE_UNIQUE, 10);
}

mod at_length {
    use super::*;

    /// 134 645 states; 23 s on one core. `make model` has renewals with as many counters.
    #[test]
    fn two_processes_that_reissue_one_lease_do_no_harm() {
        assert_holds(SHARED, 134_000, &[TwoLeases, Reissued]);
    }

    /// 78 215 states; 19 s on one core.
    #[test]
    fn two_processes_that_renew_and_reissue_one_lease_do_no_harm() {
        let config = Config { renewals: true, highest_counter: 2, ..SHARED };
        assert_holds(config, 78_000, &[TwoLeases, Reissued, RenewedWithNewToken]);
    }

    /// 875 518 states; 8 s on one core. `make model` has rounds of many steps, too.
    #[test]
    fn reissued_tokens_are_unique_and_grow() {
        assert_holds(REISSUES, 870_000, &[TwoLeases, Reissued, RenewedWithNewToken]);
    }

    #[test]
    fn on_five_nodes_with_a_reissue_that_ignores_its_rejected_seal_a_token_is_issued_twice() {
        let config = Config { protocol: IGNORES_REJECTED_SEAL, highest_counter: 3, ..FIVE_NODES };
        assert_violates(config, TOKENS_ARE_UNIQUE, 13);
    }

    #[test]
    fn with_a_renewal_that_returns_the_highest_token_a_token_is_issued_twice() {
        assert_violates(
            Config { protocol: RETURNS_THE_HIGHEST, ..REISSUES },
            TOKENS_ARE_UNIQUE,
            15,
        );
    }

    #[test]
    fn on_five_nodes_with_a_renewal_that_returns_the_highest_token_a_token_is_issued_twice() {
        let config = Config { protocol: RETURNS_THE_HIGHEST, highest_counter: 3, ..FIVE_NODES };
        assert_violates(config, TOKENS_ARE_UNIQUE, 18);
    }
}

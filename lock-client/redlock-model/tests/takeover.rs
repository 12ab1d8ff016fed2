//! Processes that take the seats of others, while clients acquire and renew.

use redlock_model::{
    properties::TOKENS_ARE_UNIQUE,
    takeover::{Config, Fault, LEASES_EXCLUDE, ONE_ELECTORATE, Situation},
};

use super::assert_holds;

/// Three seats, one new process beside the old one, one operator, and no client.
const TAKEOVER: Config = Config::ONE_START;

/// Asserts that a broken rule violates a safety property, and that this takes exactly so many steps.
#[track_caller]
fn assert_violates(config: Config, fault: Fault, property: &str, steps: usize) {
    super::assert_violates(Config { fault: Some(fault), ..config }, property, steps);
}

/// Two clients.
const WITH_CLIENTS: Config = Config { clients: 2, ..TAKEOVER };
/// Locks expire only with their leases.
const EXCLUSIVE: Config = Config { early_expiry: false, ..WITH_CLIENTS };
/// Two changes, one after the other.
const TWO_CHANGES: Config = Config { starts: 2, highest_term: 3, ..TAKEOVER };

/// 797 states.
#[test]
fn one_roster_has_a_majority_with_two_operators() {
    let situations = [Situation::NewProcessVotes, Situation::OldProcessVotes];
    assert_holds(Config { operators: 2, ..TAKEOVER }, 797, &situations);
}

/// 37 367 states; 2 s on one core.
#[test]
fn tokens_are_unique_and_grow_while_a_process_takes_a_seat_beside_the_old_one() {
    let situations = [Situation::HeldByNewProcess, Situation::OldProcessVotes];
    assert_holds(Config { clones: true, ..WITH_CLIENTS }, 37_000, &situations);
}

#[test]
fn leases_exclude_each_other_while_a_process_takes_a_seat() {
    assert_holds(EXCLUSIVE, 8_400, &[Situation::HeldByNewProcess]);
}

#[test]
fn one_roster_has_a_majority_while_two_processes_take_seats() {
    assert_holds(TWO_CHANGES, 24_000, &[Situation::TwoNewProcessesVote]);
}

/// 72 323 states; 10 s on one core. Two processes start at one member's address, or at two.
#[test]
fn one_roster_has_a_majority_although_two_operators_disagree() {
    let config = Config { starts: 2, operators: 2, ..TAKEOVER };
    assert_holds(config, 72_000, &[Situation::NewProcessVotes, Situation::TwoRosters]);
}

/// 1 675 states.
#[test]
fn one_roster_has_a_majority_on_five_seats() {
    assert_holds(Config { seats: 5, ..TAKEOVER }, 1_600, &[Situation::NewProcessVotes]);
}

#[test]
fn with_closes_that_are_not_waited_for_two_rosters_have_a_majority() {
    assert_violates(TAKEOVER, Fault::NoClose, ONE_ELECTORATE, 13);
}

#[test]
fn with_one_close_too_few_two_rosters_have_a_majority() {
    assert_violates(TAKEOVER, Fault::OneCloseTooFew, ONE_ELECTORATE, 13);
}

#[test]
fn with_the_new_process_counted_as_closed_two_rosters_have_a_majority() {
    assert_violates(TAKEOVER, Fault::NewProcessCounts, ONE_ELECTORATE, 13);
}

#[test]
fn with_a_close_that_compares_the_term_two_rosters_have_a_majority() {
    assert_violates(TWO_CHANGES, Fault::CloseComparesTerm, ONE_ELECTORATE, 23);
}

#[test]
fn with_an_admission_that_ignores_the_roster_two_rosters_have_a_majority() {
    assert_violates(TWO_CHANGES, Fault::AdmitIgnoresRoster, ONE_ELECTORATE, 29);
}

#[test]
fn with_a_prepare_that_goes_back_two_rosters_have_a_majority() {
    assert_violates(TWO_CHANGES, Fault::PrepareGoesBack, ONE_ELECTORATE, 30);
}

#[test]
fn without_the_wait_leases_overlap() {
    assert_violates(EXCLUSIVE, Fault::NoWait, LEASES_EXCLUDE, 16);
}

#[test]
fn with_a_wait_from_the_first_sight_leases_overlap() {
    assert_violates(EXCLUSIVE, Fault::WaitFromFirstSight, LEASES_EXCLUDE, 16);
}

#[test]
fn with_a_wait_from_the_first_close_leases_overlap() {
    assert_violates(EXCLUSIVE, Fault::WaitFromFirstClose, LEASES_EXCLUDE, 16);
}

#[test]
fn with_a_late_prepare_that_takes_a_voter_leases_overlap() {
    assert_violates(EXCLUSIVE, Fault::PrepareTakesVoters, LEASES_EXCLUDE, 18);
}

#[test]
fn with_a_copy_from_fewer_voters_a_token_is_issued_twice() {
    assert_violates(WITH_CLIENTS, Fault::CopyFromFewer, TOKENS_ARE_UNIQUE, 16);
}

#[test]
fn with_a_copy_that_sets_a_token_is_issued_twice() {
    assert_violates(WITH_CLIENTS, Fault::CopySets, TOKENS_ARE_UNIQUE, 17);
}

#[test]
fn with_votes_across_rosters_a_token_is_issued_twice() {
    assert_violates(WITH_CLIENTS, Fault::VotesAcrossRosters, TOKENS_ARE_UNIQUE, 16);
}

mod at_length {
    use super::*;

    #[test]
    fn with_an_operator_that_finishes_any_roster_two_rosters_have_a_majority() {
        let config = Config { starts: 2, operators: 2, ..TAKEOVER };
        assert_violates(config, Fault::FinishesAnyRoster, ONE_ELECTORATE, 20);
    }

    #[test]
    fn with_a_close_by_the_address_two_rosters_have_a_majority() {
        let config = Config { starts: 2, clones: true, ..WITH_CLIENTS };
        assert_violates(config, Fault::CloseComparesAddress, ONE_ELECTORATE, 15);
    }
}

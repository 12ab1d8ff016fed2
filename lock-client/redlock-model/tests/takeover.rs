//! Processes that take the seats of others, while clients acquire and renew.

use redlock_model::{
    properties::{NO_LEASE_OUTLIVES, TOKENS_ARE_UNIQUE},
    takeover::{Config, Fault, LEASES_EXCLUDE, ONE_ELECTORATE, Situation},
};

use super::{assert_controls, assert_holds, liveness::SPLIT_OF_FIVE};

/// Three seats, one new process beside the old one, one operator, and no client.
const TAKEOVER: Config = Config::ONE_START;

/// Two clients.
const WITH_CLIENTS: Config = Config { clients: 2, ..TAKEOVER };
/// Locks expire only with their leases.
const EXCLUSIVE: Config = Config { early_expiry: false, ..WITH_CLIENTS };
/// Two changes, one after the other.
const TWO_CHANGES: Config = Config { starts: 2, highest_term: 3, ..TAKEOVER };

#[test]
fn one_roster_has_a_majority_with_two_operators() {
    let situations = [Situation::NewProcessVotes, Situation::OldProcessVotes];
    assert_holds(Config { operators: 2, ..TAKEOVER }, 797, &situations);
}

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

/// Two processes start at one member's address, or at two.
#[test]
fn one_roster_has_a_majority_although_two_operators_disagree() {
    let config = Config { starts: 2, operators: 2, ..TAKEOVER };
    assert_holds(config, 72_000, &[Situation::NewProcessVotes, Situation::TwoRosters]);
}

#[test]
fn one_roster_has_a_majority_on_five_seats() {
    assert_holds(Config { seats: 5, ..TAKEOVER }, 1_600, &[Situation::NewProcessVotes]);
}

/// The operator moves the first seat, and then a process starts at the address of another member.
#[test]
fn one_roster_has_a_majority_while_a_seat_moves() {
    let config = Config { relocates: true, ..TWO_CHANGES };
    assert_holds(config, 4_500, &[Situation::TwoNewProcessesVote]);
}

/// The operator has seen all counters before anything was closed. Without a script, this takes more than a
/// minute.
const SEEN_EARLY: Config = Config {
    script: &["Start(0, None)", "Operator(0, Look(14))", "Operator(0, Ask(3, Prepare"],
    ..WITH_CLIENTS
};

/// Process 3 will have the seat of process 0. The first client has the lock on processes 0 and 1. Another
/// process may start in place of process 1.
const COPY: Config = Config {
    starts: 2,
    script: &[
        "Client(a, Acquire(3",
        "Start(0, None)",
        "Operator(0, Look(14))",
        "Operator(0, Ask(3, Prepare",
        "Operator(0, Look(14))",
        "Operator(0, Ask(1, Close",
        "Operator(0, Look(14))",
        "Operator(0, Ask(2, Close",
        "Operator(0, Look(14))",
    ],
    ..WITH_CLIENTS
};

#[test]
fn tokens_are_unique_and_grow_while_the_source_of_a_copy_is_replaced() {
    assert_holds(COPY, 5_600, &[Situation::HeldByNewProcess]);
}

/// Two operators give the seats of processes 0 and 1 to others, at once.
const SPLIT: Config = Config {
    starts: 2,
    operators: 2,
    script: &[
        "Start(0, None)",
        "Start(1, None)",
        "Operator(0, Look(14))",
        "Operator(0, Ask(3, Prepare",
    ],
    ..TAKEOVER
};

/// Process 3 has taken the seat of process 0, which has its vote in the first term.
const BACK: Config = Config {
    highest_term: 3,
    script: &[
        "Start(0, None)",
        "Operator(0, Look(14))",
        "Operator(0, Ask(3, Prepare",
        "Operator(0, Look(14))",
        "Operator(0, Ask(1, Close",
        "Operator(0, Look(14))",
        "Operator(0, Ask(2, Close",
        "Operator(0, Look(14))",
        "Operator(0, EndWait(3))",
        "Operator(0, Look(14))",
        "Operator(0, Copy { source: 1, from: 1 }",
        "Operator(0, Copy { source: 2, from: 2 }",
        "Operator(0, Look(14))",
        "Operator(0, Ask(3, Admit",
    ],
    ..TAKEOVER
};

/// A client may acquire under the second roster, and another one later.
const BACK_WITH_CLIENTS: Config = Config { clients: 2, ..BACK };

#[test]
fn tokens_are_unique_and_grow_while_a_process_takes_its_seat_back() {
    assert_holds(BACK_WITH_CLIENTS, 28_000, &[Situation::HeldByNewProcess]);
}

/// Process 5 has the seat of process 0, and waits: nothing was copied to it. Process 6 has the seat of process
/// 1, and has waited. The first client had the lock on processes 0, 1 and 4, until its lease ended. So the
/// counters must be copied from process 4 as well as from 2 and 3. The operator may copy now. Without the
/// fault, this model has too many states for a test: that of three seats has the copy.
const FIVE_SEATS: Config = Config {
    seats: 5,
    starts: 2,
    highest_term: 3,
    early_expiry: false,
    script: &[
        "Client(a, Acquire(19",
        "Start(0, None)",
        "Start(1, None)",
        "Operator(0, Look(62))",
        "Operator(0, Ask(5, Prepare",
        "Operator(0, Look(62))",
        "Operator(0, Ask(1, Close",
        "Operator(0, Look(62))",
        "Operator(0, Ask(2, Close",
        "Operator(0, Ask(3, Close",
        "Operator(0, Ask(4, Close",
        "Operator(0, Look(62))",
        "Operator(0, Look(124))",
        "Operator(0, Ask(6, Prepare",
        "Operator(0, Look(124))",
        "Operator(0, Ask(2, Close",
        "Operator(0, Look(108))",
        "Operator(0, Ask(3, Close",
        "Operator(0, Ask(5, Close",
        "Operator(0, Look(124))",
        "Operator(0, Ask(4, Close",
        "Operator(0, Look(124))",
        "Client(a, End",
        "Operator(0, EndWait(6))",
        "Operator(0, Look(124))",
    ],
    ..WITH_CLIENTS
};

/// A process starts with a copy of the data of the one before.
const CLONES: Config = Config { clones: true, ..TAKEOVER };

#[test]
fn with_each_broken_rule_two_rosters_have_a_majority() {
    assert_controls(&[
        (TAKEOVER, Fault::NoClose, ONE_ELECTORATE, 13),
        (TAKEOVER, Fault::OneCloseTooFew, ONE_ELECTORATE, 13),
        (TAKEOVER, Fault::NewProcessCounts, ONE_ELECTORATE, 12),
        (TAKEOVER, Fault::VotesAcrossRosters, ONE_ELECTORATE, 14),
        (TWO_CHANGES, Fault::CloseComparesTerm, ONE_ELECTORATE, 23),
        (TWO_CHANGES, Fault::AdmitIgnoresRoster, ONE_ELECTORATE, 29),
        (TWO_CHANGES, Fault::PrepareGoesBack, ONE_ELECTORATE, 30),
        (SPLIT, Fault::VotesCompareTerm, ONE_ELECTORATE, 15),
        (CLONES, Fault::VoteIgnoresProcess, ONE_ELECTORATE, 1),
    ]);
}

#[test]
fn with_each_broken_wait_leases_overlap() {
    assert_controls(&[
        (EXCLUSIVE, Fault::NoWait, LEASES_EXCLUDE, 16),
        (EXCLUSIVE, Fault::WaitFromFirstSight, LEASES_EXCLUDE, 16),
        (EXCLUSIVE, Fault::WaitFromFirstClose, LEASES_EXCLUDE, 16),
        (EXCLUSIVE, Fault::PrepareTakesVoters, LEASES_EXCLUDE, 18),
    ]);
}

#[test]
fn with_each_broken_copy_a_token_is_issued_twice() {
    assert_controls(&[
        (WITH_CLIENTS, Fault::CopyFromFewer, TOKENS_ARE_UNIQUE, 16),
        (WITH_CLIENTS, Fault::CopySets, TOKENS_ARE_UNIQUE, 17),
        (SEEN_EARLY, Fault::CopyReadsEarly, TOKENS_ARE_UNIQUE, 14),
        (COPY, Fault::CopyLooksBeforeOnly, TOKENS_ARE_UNIQUE, 9),
        (FIVE_SEATS, Fault::UnadmittedCounts, TOKENS_ARE_UNIQUE, 7),
        (BACK_WITH_CLIENTS, Fault::LaggardJumps, TOKENS_ARE_UNIQUE, 8),
    ]);
}

mod at_length {
    use super::*;

    /// Each grant and each seal is a step.
    const MANY_STEPS: Config = Config { round_steps: true, ..WITH_CLIENTS };

    #[test]
    fn tokens_are_unique_and_grow_while_a_process_takes_a_seat_during_a_round() {
        let situations = [Situation::HeldByNewProcess, Situation::OldProcessVotes];
        assert_holds(MANY_STEPS, 513_000, &situations);
    }

    /// The operator moves a seat.
    #[test]
    fn tokens_are_unique_and_grow_while_a_seat_moves_and_leases_are_renewed() {
        let config = Config { relocates: true, renewals: true, ..WITH_CLIENTS };
        assert_holds(config, 422_000, &[Situation::HeldByNewProcess, Situation::RenewedLater]);
    }

    #[test]
    fn one_roster_has_a_majority_after_two_rosters_have_split_five_seats() {
        let situations = [Situation::NewProcessVotes, Situation::TwoRosters];
        assert_holds(Config { clients: 0, ..SPLIT_OF_FIVE }, 55_000, &situations);
    }

    /// The first client has the lock on processes 0 and 2. The new process starts with a copy of process 0
    /// from then. The second client has acquired on processes 0 and 1, with a higher token.
    const OLD_LOCK: Config = Config {
        clones: true,
        renewals: true,
        late_renewals: true,
        script: &[
            "Client(a, Acquire(5",
            "Start(0, Some(0))",
            "Client(a, End",
            "Expire(0)",
            "Client(b, Acquire(3",
        ],
        ..WITH_CLIENTS
    };

    #[test]
    fn each_broken_rule_that_takes_long_is_found() {
        let disagree = Config { starts: 2, operators: 2, ..TAKEOVER };
        let clones = Config { starts: 2, clients: 2, ..CLONES };
        assert_controls(&[
            (OLD_LOCK, Fault::KeepsLocks, NO_LEASE_OUTLIVES, 18),
            (MANY_STEPS, Fault::CopyFromFewer, TOKENS_ARE_UNIQUE, 20),
            (disagree, Fault::FinishesAnyRoster, ONE_ELECTORATE, 20),
            (clones, Fault::CloseComparesAddress, ONE_ELECTORATE, 15),
        ]);
    }

    #[test]
    fn old_locks_prolong_no_lease() {
        let situations = [Situation::HeldByNewProcess, Situation::RenewedLater];
        assert_holds(OLD_LOCK, 209_000, &situations);
    }
}

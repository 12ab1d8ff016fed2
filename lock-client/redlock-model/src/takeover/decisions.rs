//! Single decisions of the machine, and the order of rosters, which no property of a model shows.

use crate::redlock::{
    machines::takeover::{Answer, Command, Takeover},
    roster::{Roster, Seat},
};

/// Five seats, whose processes have the numbers of their addresses.
fn first_roster() -> Roster {
    Roster::first((), (), (0..5).map(|member| (member, member)))
}

fn answer(address: u8, process: u8, roster: Option<Roster>, is_admitted: bool) -> Answer {
    Answer { address, process, roster, is_admitted, is_fit: true }
}

/// What the machine does after one look with these answers.
fn decide(mut machine: Takeover, answers: impl IntoIterator<Item = Answer>) -> Vec<Command> {
    assert_eq!(machine.next(), [Command::Look]);
    answers.into_iter().for_each(|answer| machine.observe(answer));
    machine.next()
}

/// Process 5 is at the address to which the first seat moves. The last member is as given.
fn with_last_member(last: Option<Answer>) -> Vec<Command> {
    let roster = first_roster();
    let voters = (0..4).map(|member| answer(member, member, Some(roster), true));
    let answers = voters.chain(last).chain([answer(9, 5, None, false)]);
    decide(Takeover::relocating((), 0, 9), answers)
}

#[test]
fn a_seat_moves_while_all_members_vote() {
    let roster = first_roster();
    let commands = with_last_member(Some(answer(4, 4, Some(roster), true)));
    assert_eq!(commands, [Command::Prepare { process: 5, roster: roster.next(0, 9, 5) }]);
}

#[test]
fn the_seat_of_a_voter_does_not_move_while_another_member_has_no_vote() {
    assert_eq!(with_last_member(None), [Command::Rest]);
}

/// Otherwise a member that is gone could not be replaced while another is gone, too.
#[test]
fn the_seat_of_a_member_without_a_vote_moves_while_another_has_none() {
    let roster = first_roster();
    let voters = (1..4).map(|member| answer(member, member, Some(roster), true));
    let answers = voters.chain([answer(9, 5, None, false)]);
    let commands = decide(Takeover::relocating((), 0, 9), answers);
    assert_eq!(commands, [Command::Prepare { process: 5, roster: roster.next(0, 9, 5) }]);
}

#[test]
fn an_unfit_process_takes_no_seat() {
    let roster = first_roster();
    let voters = (0..4).map(|member| answer(member, member, Some(roster), true));
    let unfit = Answer { is_fit: false, ..answer(4, 5, None, false) };
    assert_eq!(decide(Takeover::new(()), voters.chain([unfit])), [Command::Rest]);
}

/// All operators must have the same order, also those of another version: seat by seat, and in a seat the
/// address, then the process, then the term.
#[test]
fn rosters_of_a_term_are_ordered_by_their_seats() {
    let roster = first_roster();
    let ascending = [
        roster.next(2, 2, 7),
        roster.next(1, 1, 7),
        roster.next(0, 0, 6),
        roster.next(0, 0, 7),
        roster.next(0, 8, 5),
    ];
    assert!(ascending.is_sorted_by(|one, next| one < next), "{ascending:#?}");
    let earlier = Seat { address: 0, process: 6, since: 3 };
    assert!(
        earlier < Seat { since: 4, ..earlier }
            && earlier < Seat { process: 7, since: 2, ..earlier }
    );
}

/// Two operators have begun a term of their own each, and the member that could decide is gone. Only a new
/// start helps.
#[test]
fn nobody_decides_a_term_that_was_split() {
    let roster = first_roster();
    let [one, other] = [roster.next(0, 0, 5), roster.next(1, 1, 6)];
    let split = [
        answer(0, 0, Some(other), true),
        answer(1, 1, Some(one), true),
        answer(2, 2, Some(one), true),
        answer(3, 3, Some(other), true),
    ];
    assert_eq!(decide(Takeover::new(()), split), [Command::Rest]);
}

/// Two operators disagree on one seat, and each has closed two members.
#[test]
fn the_earlier_roster_gives_way_once_it_cannot_be_decided() {
    let roster = first_roster();
    let [one, other] = [roster.next(0, 0, 5), roster.next(0, 0, 6)];
    let answers = [(1, one), (2, other), (3, one), (4, other)]
        .map(|(member, held)| answer(member, member, Some(held), true));
    let close = |process| Command::Close { process, from: one, to: other };
    assert_eq!(decide(Takeover::new(()), answers.clone()), [close(1), close(3)]);
    // The last member, which nobody has seen, may have decided the earlier one.
    assert_eq!(decide(Takeover::new(()), answers.into_iter().take(3)), [Command::Rest]);
}

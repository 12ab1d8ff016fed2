//! Another process takes a member's seat: after a restart, at the same address, or at another one.
//!
//! One machine does all of it, for the operator and for the watcher. It looks at all nodes before each
//! step, and decides from their answers alone what to ask next. It remembers only its waits, its copies,
//! and what has failed. So any number of them may run at once, and each may stop at
//! any step: the next one sees how far the change has come, and goes on from there. The scripts compare
//! before they change anything, and that is what keeps two machines from harm.
//!
//! Term t has N seats, and M is their majority. A process *votes* for a roster if it is admitted, and
//! holds exactly this roster. Then a change has these steps:
//!
//! 1. **Prepare** the new process for the roster of t + 1. It has no vote from then on.
//! 2. **Start** t + 1 only while M voters of t stay. Otherwise t + 1 could not be decided. A seat whose
//!    process votes moves to another address only while all members vote.
//! 3. **Close** t: the members that stay take the roster of t + 1. The first alone: two machines with
//!    different rosters then meet at one node, and the second one finishes what the first has begun.
//!    With M of the voters that stay, t + 1 is *decided*: fewer than M processes are left for t,
//!    whatever the process does that had the seat.
//! 4. **Wait** for the longest ttl, from the moment when this machine has seen the decision. By then,
//!    each round, renewal and lease of t has ended.
//! 5. **Copy** the counters of M voters to the new process, by raising. The machine looks at these
//!    voters before and after: another process may have answered at an address.
//! 6. **Admit** the process.
//!
//! **Why M voters are enough to copy from.** A token was sealed by M of the N seats. The new process
//! may have the seat of one of them, so at least M - 1 of the others have it. There are N - 1 = 2M - 2
//! others, so any M of them share a seat with any M - 1 of them. A process that was admitted meanwhile
//! has copied the token itself.

use std::{cmp::Ordering, mem};

use super::{Address, Cluster, MaxTtl, Process, Term};
use crate::redlock::roster::{Roster, Seat};

/// The takeovers of a cluster, as one operator or watcher sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Takeover {
    /// Answers of other clusters are set aside.
    cluster: Cluster,
    /// The addresses between which the operator wants to move a seat; else each stays at its own.
    relocation: Option<[Address; 2]>,
    /// The answers to the last look.
    answers: Vec<Answer>,
    has_looked: bool,
    waits: Vec<Wait>,
    copies: Vec<Copied>,
    /// The processes that did not do what they were asked. They are left out until the next rest, so
    /// that one of them does not block the others.
    failed: Vec<Process>,
}

/// The answer of a process, to a look or to a request that a script compares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Answer {
    /// The address at which it was asked.
    pub(crate) address: Address,
    pub(crate) process: Process,
    /// The roster in its data.
    pub(crate) roster: Option<Roster>,
    /// Whether it may vote for this roster.
    pub(crate) is_admitted: bool,
    /// Whether its settings suit a voter. One that does not gets no seat and no admission. If it votes
    /// already, it counts: it does vote.
    pub(crate) is_fit: bool,
}

/// What the operator must do now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Command {
    /// Ask each address for its process, its roster, and whether it is admitted.
    Look,
    /// Take the vote of a process away, and its locks, and let it hold this roster.
    Prepare { process: Process, roster: Roster },
    /// Exchange exactly this roster of a process for another. An admitted process stays admitted.
    Close { process: Process, from: Roster, to: Roster },
    /// Report [`Takeover::end_wait`] when the cluster's longest ttl is over, from now on.
    Wait { process: Process, since: Term, max_ttl_ms: MaxTtl },
    /// Raise the counters of a process to those of each of the others, which vote for this roster.
    /// Report [`Takeover::observe_copy`].
    Copy { to: Process, from: Vec<Process>, roster: Roster },
    /// Admit a process that holds exactly this roster.
    Admit { process: Process, roster: Roster },
    /// Nothing more can be done now. Look again later, if that makes sense.
    Rest,
}

/// A wait for the longest ttl.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Wait {
    process: Process,
    since: Term,
    is_over: bool,
}

/// A copy to a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Copied {
    to: Process,
    /// The roster that the others voted for when the copy began.
    roster: Roster,
    from: Vec<Process>,
}

impl Takeover {
    /// Gives a member's seat to another process wherever one answers at its address.
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster, ..Self::default() }
    }

    /// Moves a member to another address. The process there takes its seat, whatever the old process
    /// does.
    pub(crate) fn relocating(cluster: Cluster, from: Address, to: Address) -> Self {
        Self { relocation: Some([from, to]), ..Self::new(cluster) }
    }

    /// Records the answer to a look. A process of another cluster is left out: it must not lose its vote
    /// there.
    pub(crate) fn observe(&mut self, answer: Answer) {
        // Old data hold the roster of another process.
        let names_itself = |roster: &Roster| roster.seat_of(&answer.process).is_some();
        let roster = answer.roster.filter(names_itself);
        let is_admitted = answer.is_admitted && roster.is_some();
        let is_foreign = roster.as_ref().is_some_and(|roster| roster.cluster != self.cluster);
        if is_foreign || self.failed.contains(&answer.process) {
            return;
        }
        self.answers.retain(|earlier| earlier.process != answer.process);
        self.answers.push(Answer { roster, is_admitted, ..answer });
        self.answers.sort_unstable();
    }

    /// Records the answer to a request to a process; `None` if it failed.
    pub(crate) fn observe_result(&mut self, command: &Command, answer: Option<Answer>) {
        let (process, is_done): (_, &dyn Fn(&Answer) -> bool) = match command {
            Command::Prepare { process, roster } => {
                (process, &|answer| answer.roster.as_ref() == Some(roster))
            }
            // It may have taken another roster meanwhile.
            Command::Close { process, from, .. } => {
                (process, &|answer| answer.roster.as_ref() != Some(from))
            }
            Command::Admit { process, .. } => (process, &|answer| answer.is_admitted),
            _ => return,
        };
        if !answer.is_some_and(|answer| answer.process == *process && is_done(&answer)) {
            self.leave_out(process);
        }
    }

    fn leave_out(&mut self, process: &Process) {
        self.failed.push(process.clone());
        self.failed.sort_unstable();
    }

    /// Records that a process has all counters of these others, of those that it should be copied from.
    pub(crate) fn observe_copy(&mut self, to: &Process, from: Vec<Process>, roster: &Roster) {
        if from.len() < roster.majority() {
            self.leave_out(to);
        } else {
            self.copies.push(Copied { to: to.clone(), roster: roster.clone(), from });
            self.copies.sort_unstable();
        }
    }

    /// Records that a wait is over.
    pub(crate) fn end_wait(&mut self, process: &Process, since: Term) {
        let mut waits = self.waits.iter_mut();
        if let Some(wait) = waits.find(|wait| (&wait.process, wait.since) == (process, since)) {
            wait.is_over = true;
        }
    }

    /// Decides what to do after everything from the last commands has been reported. The commands of
    /// one list may run at once. There is a look before each other step.
    pub(crate) fn next(&mut self) -> Vec<Command> {
        if !mem::replace(&mut self.has_looked, true) {
            return vec![Command::Look];
        }
        let mut commands = match self.decided() {
            Some(roster) => {
                let commands = self.complete(&roster);
                if commands.is_empty() { self.begin(&roster) } else { commands }
            }
            None => self.finish(),
        };
        if commands.is_empty() {
            commands.push(Command::Rest);
            self.failed.clear();
        }
        // Each step is decided by a look of its own.
        self.answers.clear();
        self.has_looked = false;
        commands
    }

    /// The newest roster, if it is decided.
    fn decided(&self) -> Option<Roster> {
        self.newest().into_iter().find(|roster| self.is_decided(roster)).cloned()
    }

    /// Whether the process of a seat votes for a roster.
    fn votes(&self, seat: &Seat, roster: &Roster) -> bool {
        let answer = self.answer_of(&seat.process);
        answer.is_some_and(|answer| answer.is_admitted && answer.roster.as_ref() == Some(roster))
    }

    fn answer_of(&self, process: &Process) -> Option<&Answer> {
        self.answers.iter().find(|answer| answer.process == *process)
    }

    fn held(&self, process: &Process) -> Option<&Roster> {
        self.answer_of(process)?.roster.as_ref()
    }

    /// The rosters of the highest term that was started, the latest by content first. A roster that
    /// only the new process holds was prepared, but not started.
    fn newest(&self) -> Vec<&Roster> {
        let started = self.answers.iter().filter(|answer| {
            let roster = answer.roster.as_ref();
            let seat = roster.and_then(|roster| roster.seat_of(&answer.process));
            answer.is_admitted
                || seat.is_some_and(|seat| Some(seat.since) < roster.map(|it| it.term))
        });
        let mut rosters: Vec<_> = started.filter_map(|answer| answer.roster.as_ref()).collect();
        let highest = rosters.iter().map(|roster| roster.term).max();
        rosters.retain(|roster| Some(roster.term) == highest);
        rosters.sort_unstable_by(|one, other| other.cmp(one));
        rosters.dedup();
        rosters
    }

    /// Whether a roster is decided: M of the voters that stay hold it. A new process that votes was
    /// admitted after that.
    fn is_decided(&self, roster: &Roster) -> bool {
        let staying = roster.staying().filter(|seat| self.votes(seat, roster)).count();
        let mut new = roster.seats.iter().filter(|seat| seat.since == roster.term);
        staying >= roster.majority() || new.any(|seat| self.votes(seat, roster))
    }

    /// Finishes a term that was started: the members that stay take its roster. If it has two rosters,
    /// the later one goes first, because an earlier one may be lost.
    fn finish(&self) -> Vec<Command> {
        let closes = self.newest().into_iter().map(|roster| self.closes(roster, false));
        closes.into_iter().find(|closes| !closes.is_empty()).unwrap_or_default()
    }

    /// The members that may take a roster now: those that have had their seats since the same term, by
    /// what they hold. Otherwise one that has lost its data could come back as the process from before.
    fn closes(&self, roster: &Roster, is_decided: bool) -> Vec<Command> {
        let close = |seat: &Seat| {
            let from = self.held(&seat.process)?;
            if from == roster || from.seat_of(&seat.process)?.since != seat.since {
                return None;
            }
            let gives_way =
                || is_decided || from < roster && from.is_lost(|process| self.held(process));
            let may_take = match from.term.cmp(&roster.term) {
                // A member that missed terms takes a decided roster only.
                Ordering::Less => is_decided || roster.follows(from),
                Ordering::Equal => gives_way(),
                Ordering::Greater => false,
            };
            may_take.then(|| Command::Close {
                process: seat.process.clone(),
                from: from.clone(),
                to: roster.clone(),
            })
        };
        roster.staying().filter_map(close).collect()
    }

    /// Completes a decided term: the other members take its roster, and the processes without a vote
    /// are admitted.
    fn complete(&mut self, roster: &Roster) -> Vec<Command> {
        // A wait is for one admission: a process that loses its vote again waits again.
        let waits = mem::take(&mut self.waits).into_iter().filter(|wait| {
            let seat = roster.seat_of(&wait.process);
            // A look may have found an earlier roster only.
            roster.term < wait.since
                || seat.is_some_and(|seat| seat.since == wait.since && !self.votes(seat, roster))
        });
        self.waits = waits.collect();
        self.copies.retain(|copied| copied.roster == *roster);
        let mut commands = self.closes(roster, true);
        for seat in roster.seats.iter() {
            let Some(answer) = self.answer_of(&seat.process).filter(|answer| answer.is_fit) else {
                continue;
            };
            match &answer.roster {
                Some(held) if held == roster && !answer.is_admitted => {
                    commands.extend(self.admit(seat, roster));
                }
                // Another operator has prepared the new process for a roster that has lost.
                Some(held)
                    if held != roster
                        && held.term == roster.term
                        && seat.since == roster.term
                        && !answer.is_admitted =>
                {
                    let (process, roster) = (seat.process.clone(), roster.clone());
                    commands.push(Command::Prepare { process, roster });
                }
                _ => {}
            }
        }
        commands
    }

    /// The next step to admit a process that holds a decided roster.
    fn admit(&mut self, seat: &Seat, roster: &Roster) -> Option<Command> {
        let process = seat.process.clone();
        // A wait belongs to a process and its seat. Others that take seats meanwhile don't prolong it.
        match self.waits.iter().find(|wait| wait.process == process) {
            None => {
                self.waits.push(Wait {
                    process: process.clone(),
                    since: seat.since,
                    is_over: false,
                });
                self.waits.sort_unstable();
                let (since, max_ttl_ms) = (seat.since, roster.max_ttl_ms);
                return Some(Command::Wait { process, since, max_ttl_ms });
            }
            Some(wait) if !wait.is_over => return None,
            Some(_) => {}
        }
        let others = roster.seats.iter().filter(|other| other.process != process);
        let voters = others.filter(|other| self.votes(other, roster));
        let voters: Vec<_> = voters.map(|voter| voter.process.clone()).collect();
        let copied = self.copies.iter().position(|copied| copied.to == process);
        if let Some(copied) = copied {
            let Copied { from, .. } = self.copies.remove(copied);
            if from.iter().filter(|source| voters.contains(source)).count() >= roster.majority() {
                return Some(Command::Admit { process, roster: roster.clone() });
            }
        }
        let is_enough = voters.len() >= roster.majority();
        is_enough.then(|| Command::Copy { to: process, from: voters, roster: roster.clone() })
    }

    /// Begins the next term, if another process should have a seat.
    fn begin(&self, roster: &Roster) -> Vec<Command> {
        let next = (0..roster.seats.len()).find_map(|seat| self.next_roster(roster, seat));
        next.into_iter().collect()
    }

    /// The step that begins a term in which another process has this seat.
    fn next_roster(&self, roster: &Roster, seat: usize) -> Option<Command> {
        let candidate = self.candidate(roster, &roster.seats[seat])?;
        let next = roster.next(seat, candidate.address.clone(), candidate.process.clone());
        let voters = next.staying().filter(|seat| self.votes(seat, roster));
        let voters: Vec<_> = voters.map(|seat| seat.process.clone()).collect();
        if voters.len() < roster.majority() {
            return None;
        }
        if candidate.roster.as_ref() != Some(&next) {
            return Some(Command::Prepare { process: candidate.process.clone(), roster: next });
        }
        let process = voters.into_iter().next()?;
        Some(Command::Close { process, from: roster.clone(), to: next })
    }

    /// The process that should have a seat instead of the one that has it.
    fn candidate(&self, roster: &Roster, seat: &Seat) -> Option<&Answer> {
        let relocated = self.relocation.as_ref().filter(|[from, _]| *from == seat.address);
        let address = relocated.map_or(&seat.address, |[_, to]| to);
        let moves = *address != seat.address;
        // It would take away a voter that answers while another member has no vote, so that fewer failures
        // would be withstood than before.
        if moves
            && self.votes(seat, roster)
            && !roster.seats.iter().all(|other| self.votes(other, roster))
        {
            return None;
        }
        // A process that has lost the record of its seat may have lost more.
        let keeps_seat = |answer: &Answer| {
            let held = answer.roster.as_ref();
            answer.process == seat.process
                && held.is_some_and(|held| {
                    let kept = held.seat_of(&seat.process);
                    kept.is_some_and(|kept| kept.since == seat.since) && held.term <= roster.term
                })
        };
        if !moves && self.answers.iter().any(keeps_seat) {
            return None;
        }
        self.answers.iter().find(|answer| {
            let has_a_seat = roster
                .seat_of(&answer.process)
                .is_some_and(|other| other != seat || keeps_seat(answer));
            answer.address == *address && answer.is_fit && !has_a_seat
        })
    }
}

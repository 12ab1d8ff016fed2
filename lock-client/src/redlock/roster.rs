//! The roster of a cluster: which process may vote for each member.
//!
//! Each *term* of a cluster has one roster, and each roster after the first gives exactly one seat to
//! another process. Two seats at once would break the rule by which one of two rosters of a term gives
//! way. A roster has no operator and no time in it, so that two operators make the same one.

use super::{
    majority::majority,
    numbers::{Address, Cluster, MaxTtl, PerNode, Process, Term},
};

/// Which process may vote for each member, in one term.
///
/// Rosters of one term are ordered by their content: see [`is_lost`](Self::is_lost). All operators must
/// have the same order. The derived one compares the fields as they stand here, and the seats one after
/// the other: so the order of the fields, and those of [`Seat`], are part of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Roster {
    /// The cluster's id, which a start draws at random.
    pub(crate) cluster: Cluster,
    /// 1 for the first roster. Each later one adds 1.
    pub(crate) term: Term,
    /// The longest ttl that the cluster grants, in milliseconds.
    pub(crate) max_ttl_ms: MaxTtl,
    pub(crate) seats: PerNode<Seat>,
}

/// A member's place in a roster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Seat {
    pub(crate) address: Address,
    /// The process that may vote: its `run_id`, which Redis creates anew at each start.
    pub(crate) process: Process,
    /// The first term whose roster names this process for this seat.
    pub(crate) since: Term,
}

impl Roster {
    /// The first roster of a new cluster.
    pub(crate) fn first(
        cluster: Cluster,
        max_ttl_ms: MaxTtl,
        members: impl IntoIterator<Item = (Address, Process)>,
    ) -> Self {
        let seat = |(address, process)| Seat { address, process, since: 1 };
        let seats = members.into_iter().map(seat).collect();
        Self { cluster, term: 1, max_ttl_ms, seats }
    }

    /// The roster of the next term, in which another process has a seat, there or at another address.
    pub(crate) fn next(&self, seat: usize, address: Address, process: Process) -> Self {
        let mut next = self.clone();
        next.term += 1;
        next.seats[seat] = Seat { address, process, since: next.term };
        next
    }

    pub(crate) fn majority(&self) -> usize {
        majority(self.seats.len())
    }

    /// Whether no process before has voted for any seat: only then may all be admitted without a wait
    /// and without a copy.
    pub(crate) fn is_first(&self) -> bool {
        self.seats.iter().all(|seat| seat.since == self.term)
    }

    /// The seat that a process has.
    pub(crate) fn seat_of(&self, process: &Process) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.process == *process)
    }

    /// The seats that this term did not give to another process.
    pub(crate) fn staying(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter().filter(|seat| seat.since < self.term)
    }

    /// Whether this may be the roster of the term after that of `base`: it gives one seat to another
    /// process, and changes nothing else.
    pub(crate) fn follows(&self, base: &Self) -> bool {
        let is_kept = |(own, before): (&Seat, &Seat)| own == before;
        (&self.cluster, self.term, &self.max_ttl_ms)
            == (&base.cluster, base.term + 1, &base.max_ttl_ms)
            && self.seats.len() == base.seats.len()
            && self.seats.iter().zip(base.seats.iter()).filter(|seats| !is_kept(*seats)).count()
                == 1
            && self.staying().count() == self.seats.len() - 1
    }

    /// Whether this roster can't be decided any more, because N - M or more of the seats that stay
    /// hold rosters of its term that are later by content: they never take this one again, and too few
    /// others are left. `held` returns the roster that a process was seen with.
    ///
    /// Without an order, two operators that disagree on one seat could stop each other for good.
    pub(crate) fn is_lost<'a>(&self, held: impl Fn(&Process) -> Option<&'a Self>) -> bool {
        let is_later = |other: &Self| other.term == self.term && other > self;
        let later = self.staying().filter(|seat| held(&seat.process).is_some_and(is_later));
        later.count() >= self.seats.len() - self.majority()
    }
}

/// What a server's data mean for the process that runs there. An operator's request is possible or not by this
/// alone, and the script compares that it is still so. A request that is not possible does nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing<'a> {
    pub(crate) process: &'a Process,
    /// The roster in the data, which may be those of another process.
    pub(crate) roster: Option<&'a Roster>,
    /// Whether the process votes for this roster.
    pub(crate) votes: bool,
    /// The roster that the process voted for until it gave up its vote.
    pub(crate) retired: Option<&'a Roster>,
}

impl Standing<'_> {
    /// Whether the process may hold this roster without a vote. Its term never falls. One that votes keeps its
    /// vote, unless the roster is of a later term.
    pub(crate) fn may_be_prepared(&self, next: &Roster) -> bool {
        let own = self.roster.filter(|own| own.seat_of(self.process).is_some());
        own.is_none_or(|own| match own.cluster == next.cluster {
            true => own.term < next.term || own.term == next.term && !self.votes,
            false => !self.votes,
        })
    }

    /// Whether the process holds exactly this roster, so that it may exchange it for another that names it.
    pub(crate) fn may_be_closed(&self, from: &Roster, to: &Roster) -> bool {
        let is_named = |roster: &Roster| roster.seat_of(self.process).is_some();
        self.roster == Some(from) && is_named(from) && is_named(to)
    }

    /// Whether the process holds exactly this roster, and has not given up its vote for it.
    pub(crate) fn may_be_admitted(&self, roster: &Roster) -> bool {
        let is_named = roster.seat_of(self.process).is_some();
        is_named && self.roster == Some(roster) && self.retired != Some(roster)
    }
}

//! What a model of takeovers contains, and which rule it breaks.

use crate::id::Token;

/// The limits of a model.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The number of seats: 3 or 5.
    pub seats: u8,
    /// How many new processes may start, each at the address of a member.
    pub starts: u8,
    /// The highest term. A seat may go back and forth between two processes, without an end.
    pub highest_term: u8,
    /// Whether a new process may start with a copy of the old one's data.
    pub clones: bool,
    /// Whether the first operator moves the first seat to another address, where the first new process
    /// starts.
    pub relocates: bool,
    /// The number of operators and watchers.
    pub operators: u8,
    /// The number of clients, with one acquire each.
    pub clients: u8,
    /// Whether an acquire takes many steps or one.
    pub round_steps: bool,
    /// Whether leases are renewed, and join free nodes.
    pub renewals: bool,
    /// Whether a lease that has ended may be renewed once: another process has its handle.
    pub late_renewals: bool,
    /// Whether locks expire at any moment. If not, they expire with their lease, so that leases must
    /// exclude each other.
    pub early_expiry: bool,
    /// The limit of every counter.
    pub highest_counter: Token,
    /// The first steps, which are prescribed: the beginning of each one's description. The machine
    /// itself takes them. All states that follow are explored. Sets of processes are printed as bits: 14 is
    /// 0b1110, the processes 1, 2 and 3.
    pub script: &'static [&'static str],
    /// The rule that is broken; `None` for the protocol as built.
    pub fault: Option<Fault>,
}

impl Config {
    /// Three seats, one new process beside the old one, one operator, and no client.
    pub const ONE_START: Self = Self {
        seats: 3,
        starts: 1,
        highest_term: 2,
        clones: false,
        relocates: false,
        operators: 1,
        clients: 0,
        round_steps: false,
        renewals: false,
        late_renewals: false,
        early_expiry: true,
        highest_counter: 2,
        script: &[],
        fault: None,
    };
}

/// A rule that is left out. The tests show that the model finds the consequence.
///
/// The machine is not changed for that. A script compares less, or the operator that carries the
/// machine's commands does something else, and reports what the machine expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No close is waited for: the members are taken for closed, and the requests may come late.
    NoClose,
    /// One member is taken for closed that is not.
    OneCloseTooFew,
    /// The new process is counted as closed, instead of a member that stays.
    NewProcessCounts,
    /// A member that stays counts as a voter when it holds the roster, also without a vote.
    UnadmittedCounts,
    /// A process takes the close for another one at its address.
    CloseComparesAddress,
    /// A close takes the place of any roster of an earlier or the same term.
    CloseComparesTerm,
    /// There is no wait.
    NoWait,
    /// The wait counts from the moment when the new process was seen.
    WaitFromFirstSight,
    /// The wait counts from the first close.
    WaitFromFirstClose,
    /// The counters are copied from M - 1 voters.
    CopyFromFewer,
    /// The sources are read when they are first seen, which may be before they have closed.
    CopyReadsEarly,
    /// The sources are not looked at again after the copy: another process may have answered.
    CopyLooksBeforeOnly,
    /// A copy sets the counter, also to a lower one.
    CopySets,
    /// An admission takes a process that holds another roster.
    AdmitIgnoresRoster,
    /// A voter takes a late `prepare` of its term.
    PrepareTakesVoters,
    /// A process takes a `prepare` for an earlier term.
    PrepareGoesBack,
    /// Of two rosters of a term, an operator finishes any.
    FinishesAnyRoster,
    /// Of two rosters of a term, none gives way unless the other is decided.
    NoRosterGivesWay,
    /// A member takes any decided roster that names it, also for a seat that it got later; and a voter is taken
    /// for prepared for that seat although it is not.
    LaggardJumps,
    /// A process votes by its data, whatever process they name.
    VoteIgnoresProcess,
    /// A client counts the votes of all admitted processes.
    VotesAcrossRosters,
    /// Clients and nodes compare the terms of their rosters only.
    VotesCompareTerm,
    /// A process that takes a seat keeps the locks in its data.
    KeepsLocks,
}

impl Fault {
    /// Whether a process's term may fall, or it may take a request that it could not take before.
    pub(crate) const fn old_requests_matter(self) -> bool {
        matches!(
            self,
            Self::CloseComparesAddress
                | Self::CloseComparesTerm
                | Self::AdmitIgnoresRoster
                | Self::PrepareTakesVoters
                | Self::PrepareGoesBack
        )
    }
}

//! What a model of changes contains, and its limits.

use super::rules::{Rules, VoteRule};
use crate::id::{MOST_NODES, NodeId, NodeSet, Token};

/// The largest number of clients in a model of changes.
pub const MOST_CLIENTS: usize = 2;
/// The largest number of proposers in a model of changes.
pub const MOST_PROPOSERS: usize = 3;

/// The number of a change: its place in [`Config::changes`]. It stands for the unique id.
pub type ChangeId = u8;

/// A set of members that may be decided for one epoch.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The change that made the epoch before; the start of the cluster names itself.
    pub base: ChangeId,
    /// The numbers of the members.
    pub members: &'static [u8],
}

/// The limits of a model of changes.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The changes. The first is the start of the cluster.
    pub changes: &'static [Change],
    /// The change that each proposer proposes; up to [`MOST_PROPOSERS`].
    pub proposals: &'static [ChangeId],
    /// How many ballots each of them may start.
    pub ballots: [u8; MOST_PROPOSERS],
    /// The number of clients, with one round each: 0 to [`MOST_CLIENTS`].
    pub clients: usize,
    /// Whether a round takes one step instead of many.
    pub atomic_acquires: bool,
    /// Whether leases are renewed, and join free nodes.
    pub renewals: bool,
    /// Whether an ended client's release raises counters.
    pub releases: bool,
    /// Whether a lock may expire before its lease ends. If not, leases must exclude each other.
    pub early_expiry: bool,
    /// The limit of every counter. The model leaves out any step that passes it.
    pub highest_counter: Token,
    /// How many restarts there may be in all.
    pub restarts: u8,
    /// Whether a restart may bring back an old copy of the lock and the counter.
    pub old_copies: bool,
    /// The rules that operators, nodes and clients follow.
    pub rules: Rules,
}

impl Config {
    pub(crate) fn base(&self, change: ChangeId) -> ChangeId {
        self.changes[usize::from(change)].base
    }

    /// Whether a change makes the epoch after another change's.
    pub(crate) fn follows(&self, change: ChangeId, base: ChangeId) -> bool {
        change != 0 && self.base(change) == base
    }

    /// Whether a node was no member of the epoch before a change.
    pub(crate) fn is_new(&self, node: NodeId, change: ChangeId) -> bool {
        change != 0 && !self.members(self.base(change)).contains(node)
    }

    pub(crate) fn epoch(&self, change: ChangeId) -> u8 {
        if change == 0 { 0 } else { self.epoch(self.base(change)) + 1 }
    }

    pub(crate) fn members(&self, change: ChangeId) -> NodeSet {
        let mut members = NodeSet::EMPTY;
        let numbers = self.changes[usize::from(change)].members;
        numbers.iter().for_each(|number| members.insert(NodeId(*number)));
        members
    }

    /// Whether so many nodes are a majority of a change's members.
    pub(crate) fn is_majority(&self, change: ChangeId, nodes: usize) -> bool {
        nodes >= self.majority(change)
    }

    pub(crate) fn majority(&self, change: ChangeId) -> usize {
        self.changes[usize::from(change)].members.len() / 2 + 1
    }

    /// The nodes that a client asks under a change.
    pub(crate) fn asked(&self, change: ChangeId) -> NodeSet {
        let mut asked = self.members(change);
        if self.rules.vote == VoteRule::CountsRemoved && change != 0 {
            self.members(self.base(change)).iter().for_each(|id| asked.insert(id));
        }
        asked
    }

    /// All sets of these nodes that a client takes for a majority.
    pub(crate) fn majorities(&self, change: ChangeId) -> impl Iterator<Item = NodeSet> {
        let members = self.asked(change);
        let subsets = (0_u8..1 << MOST_NODES).filter_map(move |bits| {
            let chosen = |id: NodeId| bits & 1 << id.0 != 0;
            let is_subset = NodeId::first(MOST_NODES).all(|id| members.contains(id) || !chosen(id));
            is_subset.then(|| NodeSet::from_condition(MOST_NODES, chosen))
        });
        subsets.filter(move |nodes| self.is_majority(change, nodes.len()))
    }

    pub(crate) fn change_ids(&self) -> impl Iterator<Item = ChangeId> + use<> {
        0..self.changes.len() as ChangeId
    }
}

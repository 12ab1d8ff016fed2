//! Tokens, holders, nodes and sets of nodes, and how many of each there are.

use std::fmt;

/// The number of nodes.
pub(crate) const NODES: usize = 3;
/// The number of nodes that form a majority: M.
pub(crate) const MAJORITY: usize = NODES / 2 + 1;
/// The largest number of clients in a model.
pub const MOST_CLIENTS: usize = 3;

/// A token, a grant or a counter. 0 means none.
pub(crate) type Token = u8;

/// The holder of one round. It is also the client's number, because a client has one round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub(crate) u8);

/// A node's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u8);

/// A set of nodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSet(u8);

impl Holder {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl NodeId {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..NODES as u8).map(Self)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl NodeSet {
    pub(crate) const EMPTY: Self = Self(0);

    /// The nodes that satisfy a condition.
    pub(crate) fn from_condition(mut condition: impl FnMut(NodeId) -> bool) -> Self {
        let mut nodes = Self::EMPTY;
        NodeId::all().filter(|node| condition(*node)).for_each(|node| nodes.insert(node));
        nodes
    }

    pub(crate) fn all_majorities() -> impl Iterator<Item = Self> {
        (0..1 << NODES).map(Self).filter(|nodes| nodes.is_majority())
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = NodeId> {
        NodeId::all().filter(move |node| self.contains(*node))
    }

    pub(crate) fn insert(&mut self, node: NodeId) {
        self.0 |= 1 << node.0;
    }

    pub(crate) fn contains(self, node: NodeId) -> bool {
        self.0 & 1 << node.0 != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn is_majority(self) -> bool {
        self.len() >= MAJORITY
    }

    /// The highest answer of these nodes; 0 for an empty set.
    pub(crate) fn highest(self, answers: &[Token; NODES]) -> Token {
        self.iter().map(|node| answers[node.index()]).max().unwrap_or(0)
    }

    /// The same set after the nodes were renumbered. `order[new]` is a node's old number.
    pub(crate) fn renumbered(self, order: &[NodeId; NODES]) -> Self {
        Self::from_condition(|node| self.contains(order[node.index()]))
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", char::from(b'a' + self.0))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

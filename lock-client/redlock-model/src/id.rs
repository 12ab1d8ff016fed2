//! Tokens, holders, nodes and sets of nodes, and how many of each there are.

use std::fmt;

use crate::redlock::majority::majority;

/// The largest number of nodes in a model.
pub const MOST_NODES: usize = 5;
/// The largest number of clients in a model.
pub const MOST_CLIENTS: usize = 3;

/// A token, a grant or a counter. 0 means none.
pub type Token = u8;

/// The holder of one round. It is also the client's number, because a client has one round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub u8);

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
    /// The nodes of a cluster of so many.
    pub(crate) fn first(nodes: usize) -> impl Iterator<Item = Self> {
        (0..nodes as u8).map(Self)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl NodeSet {
    pub(crate) const EMPTY: Self = Self(0);

    /// The nodes of a cluster of `nodes` that satisfy a condition.
    pub(crate) fn from_condition(nodes: usize, mut condition: impl FnMut(NodeId) -> bool) -> Self {
        let mut set = Self::EMPTY;
        NodeId::first(nodes).filter(|node| condition(*node)).for_each(|node| set.insert(node));
        set
    }

    /// All majorities of a cluster of `nodes`.
    pub(crate) fn all_majorities(nodes: usize) -> impl Iterator<Item = Self> {
        (0..1 << nodes).map(Self).filter(move |set| set.is_majority_of(nodes))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = NodeId> {
        NodeId::first(MOST_NODES).filter(move |node| self.contains(*node))
    }

    pub(crate) fn insert(&mut self, node: NodeId) {
        self.0 |= 1 << node.0;
    }

    pub(crate) fn contains(self, node: NodeId) -> bool {
        self.0 & 1 << node.0 != 0
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether these are M of a cluster of `nodes`.
    pub(crate) fn is_majority_of(self, nodes: usize) -> bool {
        self.len() >= majority(nodes)
    }

    /// The same set after the nodes were renumbered. `order[new]` is a node's old number.
    pub(crate) fn renumbered(self, order: &[NodeId; MOST_NODES]) -> Self {
        Self::from_condition(MOST_NODES, |node| self.contains(order[node.index()]))
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

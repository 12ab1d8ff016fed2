//! Numbers at the bottom of everything: tokens, holders, nodes, sets of nodes, and how many there are.

use std::fmt;

/// The number of nodes.
pub(crate) const NODES: usize = 3;
/// The number of nodes that form a majority.
pub(crate) const MAJORITY: usize = NODES / 2 + 1;
/// The largest number of clients in a model.
pub const MOST_CLIENTS: usize = 3;

/// A token, a grant or a counter; 0 means none.
pub(crate) type Token = u8;

/// The holder of one round. It is also the client's number, since a client has one round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub(crate) u8);

/// A node's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u8);

/// A set of nodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nodes(u8);

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

impl Nodes {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn those(mut which: impl FnMut(NodeId) -> bool) -> Self {
        let mut nodes = Self::NONE;
        NodeId::all().filter(|node| which(*node)).for_each(|node| nodes.insert(node));
        nodes
    }

    pub(crate) fn majorities() -> impl Iterator<Item = Self> {
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
        self == Self::NONE
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn is_majority(self) -> bool {
        self.len() >= MAJORITY
    }

    /// The same set, of nodes that were put in another order: the node at each place was elsewhere.
    pub(crate) fn reordered(self, order: &[NodeId; NODES]) -> Self {
        Self::those(|node| self.contains(order[node.index()]))
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

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

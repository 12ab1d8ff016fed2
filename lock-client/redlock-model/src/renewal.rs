//! A lease's renewal: M nodes that count answer that the lock there is still the lease's.

use crate::id::{MOST_NODES, NodeId, NodeSet, Token};

/// The latest renewal of a lease. It ends before a reissue starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Renewal {
    /// Whether the client still waits for it.
    pub(crate) under_way: bool,
    /// The highest token issued before the renewal started.
    pub(crate) issued_before: Token,
    /// The token sealed on each node that has answered, and counts; else 0.
    pub(crate) answers: [Token; MOST_NODES],
}

impl Renewal {
    pub(crate) fn start(&mut self, issued_before: Token) {
        *self = Self { under_way: true, issued_before, ..Self::default() };
    }

    pub(crate) fn receive(&mut self, node: NodeId, token: Token) {
        if self.under_way {
            self.answers[node.index()] = token;
        }
    }

    /// The lowest and the highest token, once M nodes that count have answered.
    pub(crate) fn tokens(&self, nodes: usize) -> Option<(Token, Token)> {
        let answered = NodeSet::from_condition(nodes, |node| self.answers[node.index()] != 0);
        let tokens = || answered.iter().map(|node| self.answers[node.index()]);
        if !answered.is_majority_of(nodes) {
            return None;
        }
        tokens().min().zip(tokens().max())
    }
}

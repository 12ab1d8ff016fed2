//! A lease's reissue: M nodes raise their counters, and M nodes are sealed with the new token.

use crate::{
    id::{MOST_NODES, NodeId, NodeSet, Token},
    protocol::ReissueRule,
};

/// The latest reissue of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reissue {
    /// How many reissues the lease has started, including this one.
    pub(crate) started: u8,
    /// Whether the client still waits for it. Its requests stay in the network in any case.
    pub(crate) under_way: bool,
    /// The highest token issued before the reissue started.
    pub(crate) issued_before: Token,
    /// The new token must be above this.
    pub(crate) above: Token,
    /// Each node's raised counter. The answer may still be on its way: see `received`.
    pub(crate) raised: [Token; MOST_NODES],
    /// The nodes whose raised counter the client has received.
    pub(crate) received: NodeSet,
    /// The new token; 0 before the M-th answer.
    pub(crate) token: Token,
    /// The nodes that are sealed with the new token, and count. The client learns of each in the
    /// step that seals it.
    pub(crate) sealed: NodeSet,
}

impl Reissue {
    pub(crate) fn start(&mut self, above: Token, issued_before: Token) {
        let started = self.started + 1;
        *self = Self { started, under_way: true, issued_before, above, ..Self::default() };
    }

    /// Completes an earlier reissue, which a renewal has found on some nodes: seals its token.
    pub(crate) fn complete_found(&mut self, token: Token, issued_before: Token) {
        let Self { started, above, .. } = *self;
        *self = Self { started, under_way: true, issued_before, above, token, ..Self::default() };
    }

    /// Receives a node's raised counter. The M-th answer fixes the new token.
    pub(crate) fn receive(&mut self, node: NodeId, nodes: usize) {
        self.received.insert(node);
        if self.token == 0 && self.received.is_majority_of(nodes) {
            self.token = self.received.highest(&self.raised);
        }
    }

    /// Whether the client may return the new token.
    pub(crate) fn is_complete(&self, rule: ReissueRule, nodes: usize) -> bool {
        self.under_way
            && self.token != 0
            && (self.sealed.is_majority_of(nodes) || rule == ReissueRule::RaisesOnly)
    }

    /// Stops waiting. The client ignores all answers from now on, but nodes may still get requests.
    pub(crate) fn stop(&mut self) {
        let Self { started, above, token, .. } = *self;
        *self = Self { started, above, token, ..Self::default() };
    }
}

//! A client: one round, its lease, and what it read from the storage.
//!
//! A real client starts each round under a new holder, so that nodes and storage take it for
//! another client. Here it *is* another client. The number of clients therefore limits the number
//! of rounds, which may overlap or follow each other.

use crate::{
    id::{Holder, MOST_NODES, NodeId, NodeSet, Token},
    protocol::{GrantRule, Protocol, ReissueRule, SealRule},
    reissue::Reissue,
    renewal::Renewal,
    storage::Fence,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// The highest token issued before the round started.
    pub(crate) issued_before: Token,
    /// Each node's grant. The answer may still be on its way: see `received`.
    pub(crate) grants: [Token; MOST_NODES],
    /// The nodes that processed a request for a grant, if each may do so only once.
    pub(crate) asked: NodeSet,
    /// The nodes whose grant the client has received.
    pub(crate) received: NodeSet,
    /// The nodes sealed with `grant`. The client learns of each in the step that seals it.
    pub(crate) sealed: NodeSet,
    /// The round's token, which becomes the grant of the lease; 0 before the M-th grant.
    pub(crate) grant: Token,
    /// The lease's token. After giving up: the highest grant received.
    pub(crate) token: Token,
    pub(crate) reissue: Reissue,
    pub(crate) renewal: Renewal,
    /// The grant of each node that the lease has joined; else 0.
    pub(crate) joined: [Token; MOST_NODES],
    /// The token of the last accepted claim.
    pub(crate) claimed: Token,
    /// The value that this claim read.
    pub(crate) read: Option<Fence>,
    /// The nodes that restarted after the round started. They refuse this client's requests,
    /// because it asks for the `run_id` from before.
    pub(crate) restarted: NodeSet,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Round,
    Lease,
    /// The client released its lease. A late claim may still reach the storage.
    Released,
    /// The client had no lease, or nothing of it can have an effect any more.
    GaveUp,
}

impl Client {
    /// Starts the round, if it has not started yet.
    ///
    /// The arrival of the first request is the latest possible start. An earlier start would demand
    /// less of the token, because fewer tokens would have been issued before it.
    pub(crate) fn start_round(&mut self, issued_before: Token) {
        if self.phase == Phase::Idle {
            self.phase = Phase::Round;
            self.issued_before = issued_before;
        }
    }

    /// Receives a node's grant. The M-th grant fixes the token.
    pub(crate) fn receive_grant(&mut self, node: NodeId, nodes: usize, rule: GrantRule) {
        self.received.insert(node);
        let grant = self.grants[node.index()];
        if self.grant == 0 && self.received.is_majority_of(nodes) {
            self.grant = self.received.highest(&self.grants);
            self.sealed = NodeSet::from_condition(nodes, |node| {
                self.received.contains(node) && self.grants[node.index()] == self.grant
            });
        } else if self.phase == Phase::Round
            && (grant == self.grant
                || rule == GrantRule::AboveTheToken && self.grant != 0 && grant > self.grant)
        {
            self.sealed.insert(node);
        }
    }

    /// Whether the client may conclude that it holds the lock.
    pub(crate) fn can_acquire(&self, protocol: &Protocol, nodes: usize) -> bool {
        self.phase == Phase::Round
            && self.grant != 0
            && (self.sealed.is_majority_of(nodes) || protocol.seal == SealRule::NoSeal)
    }

    pub(crate) fn acquire(&mut self) {
        self.phase = Phase::Lease;
        self.token = self.grant;
        self.issued_before = 0;
        self.sealed = NodeSet::EMPTY;
    }

    /// Gives up the round, or releases the lease. The release is now on its way to the nodes.
    pub(crate) fn end(&mut self) {
        if self.phase == Phase::Lease {
            self.phase = Phase::Released;
        } else {
            self.phase = Phase::GaveUp;
            self.token = self.received.highest(&self.grants);
        }
        self.issued_before = 0;
        self.sealed = NodeSet::EMPTY;
        self.renewal = Renewal::default();
        self.reissue.stop();
    }

    /// Starts a reissue, for a token above `above`.
    pub(crate) fn start_reissue(&mut self, above: Token, issued_before: Token) {
        self.renewal = Renewal::default();
        self.reissue.start(above, issued_before);
    }

    /// Completes the reissue: the lease has the new token.
    pub(crate) fn complete_reissue(&mut self, rule: ReissueRule) {
        self.token = self.reissue.token;
        if rule == ReissueRule::ResendsRejectedWrite && self.claimed != 0 {
            self.claimed = self.token;
        }
        self.reissue.stop();
    }

    /// Completes a renewal, which found these tokens. M nodes have sealed the lowest. A reissue that
    /// was interrupted has sealed the highest on fewer, and is completed.
    pub(crate) fn complete_renewal(&mut self, (lowest, highest): (Token, Token)) {
        self.token = self.token.max(lowest);
        if highest > self.token {
            self.reissue.complete_found(highest, self.renewal.issued_before);
        }
        self.renewal = Renewal::default();
    }

    /// The grant under which the lease has the lock on this node, as far as the client knows.
    pub(crate) fn grant_on(&self, node: NodeId) -> Token {
        match self.joined[node.index()] {
            0 => self.grant,
            joined => joined,
        }
    }

    /// Receives the grant of a node that the lease has joined.
    pub(crate) fn join(&mut self, node: NodeId, grant: Token) {
        self.joined[node.index()] = if grant == self.grant { 0 } else { grant };
    }

    /// Whether it has given up or released.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Released | Phase::GaveUp)
    }

    /// Whether it has acquired the lock, even if it has released it since.
    pub(crate) fn has_acquired(&self) -> bool {
        matches!(self.phase, Phase::Lease | Phase::Released)
    }

    /// Whether it has sent a seal to a node: to each whose grant is below the token.
    pub(crate) fn has_sent_seal(&self, node: NodeId) -> bool {
        let grant = self.grants[node.index()];
        self.received.contains(node) && 0 < grant && grant < self.grant
    }

    /// Whether it waits for answers to requests that it sent before this node restarted.
    pub(crate) fn waits_since_before_restart(&self, node: NodeId) -> bool {
        self.restarted.contains(node)
            && (self.phase == Phase::Round || self.reissue.under_way || self.renewal.under_way)
    }

    /// The token and the holder of its writes: those of its last accepted claim.
    pub(crate) fn offer_of_write(&self, holder: Holder) -> Fence {
        Fence { token: self.claimed, holder }
    }
}

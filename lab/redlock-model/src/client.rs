//! A client, which has one round: a grant from each node, a seal, a lease.
//!
//! A client that begins another round does so under a new holder, and to all others that is another
//! client. So here it *is* another client: the limit of clients is a limit of rounds, any of which may
//! be under way at the same time, or one after the other.

use crate::{
    id::{Holder, MAJORITY, NODES, NodeId, Nodes, Token},
    storage::Fence,
    variant::{self, Variant},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// The highest token that anybody had been told as the round began.
    pub(crate) told_before: Token,
    /// Each node's grant, which may be on its way still: see `counted`.
    pub(crate) grants: [Token; NODES],
    /// The nodes that were asked for their grant, where that is done once only.
    pub(crate) asked: Nodes,
    /// The nodes whose grant it has heard of.
    pub(crate) counted: Nodes,
    /// The nodes of which it may know that they are sealed with the `grant`.
    pub(crate) sealed: Nodes,
    /// The round's token, which is the grant of the lease; 0 before the M-th grant.
    pub(crate) grant: Token,
    /// The last token that it was told; once it has given up, the highest grant it has seen.
    pub(crate) token: Token,
    pub(crate) reissue: Reissue,
    /// What each node answered to a renewal: a token above the one it was told last, or 0.
    pub(crate) renewals: [Token; NODES],
    /// The token of its last accepted claim.
    pub(crate) claimed: Token,
    /// What it read as it claimed.
    pub(crate) read: Option<Fence>,
    /// The nodes that have restarted since the round began: they refuse it their vote, since the
    /// run_id isn't the one that it has seen.
    pub(crate) restarted: Nodes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Round,
    Lease,
    /// It had a lease, and may still claim: the request is late.
    Released,
    /// It had none, or nothing is left of it.
    GaveUp,
}

/// A lease's swap of its token for a higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reissue {
    /// How many were begun, this one included.
    pub(crate) begun: u8,
    /// Whether the client still waits for it. What it sent stays in the network in any case.
    pub(crate) under_way: bool,
    /// The highest token that anybody had been told as it began.
    pub(crate) told_before: Token,
    pub(crate) above: Token,
    /// Each node's counter, which may be on its way still: see `counted`.
    pub(crate) raised: [Token; NODES],
    pub(crate) counted: Nodes,
    /// The new token; 0 before the M-th answer.
    pub(crate) token: Token,
    /// The nodes of which it may know that they are sealed with the new token.
    pub(crate) sealed: Nodes,
}

impl Client {
    /// Begins the round, if it hasn't yet.
    ///
    /// That the first of its requests arrives is the latest moment for it. Had it begun before, less
    /// would have been told by then, and less would be demanded of its token.
    pub(crate) fn begin(&mut self, told_before: Token) {
        if self.phase == Phase::Idle {
            self.phase = Phase::Round;
            self.told_before = told_before;
        }
    }

    /// Hears of a node's grant. The M-th makes the token.
    pub(crate) fn count(&mut self, node: NodeId) {
        self.counted.insert(node);
        if self.grant == 0 && self.counted.is_majority() {
            self.grant = self.highest_counted();
            self.sealed = Nodes::those(|node| {
                self.counted.contains(node) && self.grants[node.index()] == self.grant
            });
        } else if self.phase == Phase::Round && self.grants[node.index()] == self.grant {
            self.sealed.insert(node);
        }
    }

    /// Whether it may conclude that the lease is its own.
    pub(crate) fn has_lock(&self, variant: &Variant) -> bool {
        self.phase == Phase::Round
            && self.grant != 0
            && (self.sealed.is_majority() || variant.seal == variant::Seal::None)
    }

    /// Is told that it has a lease.
    pub(crate) fn acquire(&mut self) {
        self.phase = Phase::Lease;
        self.token = self.grant;
        self.told_before = 0;
        self.sealed = Nodes::NONE;
    }

    /// Ends the round or the lease: the release is on its way to the nodes.
    pub(crate) fn end(&mut self) {
        if self.phase == Phase::Lease {
            self.phase = Phase::Released;
        } else {
            self.phase = Phase::GaveUp;
            self.token = self.highest_counted();
        }
        self.told_before = 0;
        self.sealed = Nodes::NONE;
        self.renewals = [0; NODES];
        self.end_reissue();
    }

    /// Begins a reissue, above a token that the storage has seen.
    pub(crate) fn begin_reissue(&mut self, above: Token, told_before: Token) {
        let begun = self.reissue.begun + 1;
        self.renewals = [0; NODES];
        self.reissue = Reissue { begun, under_way: true, told_before, above, ..Reissue::default() };
    }

    /// Hears of a node's raise. The M-th makes the new token.
    pub(crate) fn count_raise(&mut self, node: NodeId) {
        let reissue = &mut self.reissue;
        reissue.counted.insert(node);
        if reissue.token == 0 && reissue.counted.len() == MAJORITY {
            reissue.token = highest(&reissue.raised, reissue.counted);
        }
    }

    pub(crate) fn has_reissued(&self, variant: &Variant) -> bool {
        self.reissue.under_way
            && self.reissue.token != 0
            && (self.reissue.sealed.is_majority() || variant.reissue == variant::Reissue::Unsealed)
    }

    /// Is told the new token.
    pub(crate) fn reissued(&mut self, variant: &Variant) {
        self.token = self.reissue.token;
        if variant.reissue == variant::Reissue::Resends && self.claimed != 0 {
            self.claimed = self.token;
        }
        self.end_reissue();
    }

    /// Waits for the reissue no longer. What is on its way from the nodes is nothing to it any more.
    pub(crate) fn end_reissue(&mut self) {
        let Reissue { begun, above, token, .. } = self.reissue;
        self.reissue = Reissue { begun, above, token, ..Reissue::default() };
    }

    /// The token that a renewal tells: the lowest of the M that answered, if it is a new one.
    pub(crate) fn renewed(&self) -> Option<Token> {
        let answered = Nodes::those(|node| self.renewals[node.index()] != 0);
        let lowest = self.renewals.iter().copied().filter(|token| *token != 0).min();
        lowest.filter(|_| answered.is_majority())
    }

    /// Is told a token by a renewal.
    pub(crate) fn renew(&mut self, token: Token) {
        self.token = token;
        self.renewals = [0; NODES];
    }

    /// Whether it has given up or released.
    pub(crate) fn ended(&self) -> bool {
        matches!(self.phase, Phase::Released | Phase::GaveUp)
    }

    /// Whether it has sent a seal to a node.
    pub(crate) fn seals(&self, node: NodeId) -> bool {
        let grant = self.grants[node.index()];
        self.counted.contains(node) && 0 < grant && grant < self.grant
    }

    /// Whether it waits for something that it asked the nodes before one of them restarted.
    pub(crate) fn waits_since_before_restart(&self, node: NodeId) -> bool {
        self.restarted.contains(node)
            && (self.phase == Phase::Round
                || self.reissue.under_way
                || self.renewals.iter().any(|token| *token != 0))
    }

    /// With which token and holder it writes: those that it claimed with.
    pub(crate) fn writes_as(&self, holder: Holder) -> Fence {
        Fence { token: self.claimed, holder }
    }

    fn highest_counted(&self) -> Token {
        highest(&self.grants, self.counted)
    }
}

fn highest(answers: &[Token; NODES], counted: Nodes) -> Token {
    let counted = NodeId::all().filter(|node| counted.contains(*node));
    counted.map(|node| answers[node.index()]).max().unwrap_or(0)
}

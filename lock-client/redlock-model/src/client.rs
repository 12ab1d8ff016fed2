//! A client: the machines of one round and of its lease, and what it has sent.
//!
//! The machines are those of `lock-client`: they decide everything. This module only carries their
//! messages, as `round.rs` and `update.rs` do there.
//!
//! A real client starts each round under a new holder, so that nodes take it for another client. Here it
//! *is* another client. The number of clients therefore limits the number of rounds, which may overlap or
//! follow each other.

use crate::{
    fault::Fault,
    id::{Holder, MOST_NODES, NodeId, NodeSet, Token},
    redlock::machines::{
        acquire::{self, Acquire, Answer},
        lease_tokens::LeaseTokens,
        update::{Command, Purpose, Report, Request, Update},
        votes::{Event, Owned, OwnerReply, Vote, Votes},
    },
};

// A list of nodes has a fixed size here, so that a state can be copied.
impl Copy for Acquire {}
impl Copy for Update {}
impl Copy for Votes {}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// Whether it has adopted the lease of the first client.
    pub(crate) has_adopted: bool,
    /// The highest token issued before the round, or before the renewal or the reissue that is under
    /// way, started.
    pub(crate) issued_before: Token,
    /// The round. It still waits for grants while there is a lease.
    pub(crate) round: Option<Acquire>,
    /// The round's token, which becomes the grant of the lease; 0 before the round reports it.
    pub(crate) grant: Token,
    /// The token that the client was given. After giving up: the token that releases raise to.
    pub(crate) token: Token,
    pub(crate) lease: Option<LeaseTokens>,
    /// The grant on each node, if the client knows that it is not the lease's; else 0.
    pub(crate) other_grants: [Token; MOST_NODES],
    /// The renewal or the reissue that is under way.
    pub(crate) update: Option<Update>,
    /// A renewal or a reissue that has ended, and has not returned its token yet.
    pub(crate) returning: Option<Returning>,
    /// How many reissues the lease has started.
    pub(crate) reissues: u8,
    pub(crate) sent: Sent,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Round,
    Lease,
    /// The client released its lease.
    Released,
    /// The client had no lease, or nothing of it can have an effect any more.
    GaveUp,
}

/// The token of a renewal or a reissue that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Returning {
    pub(crate) purpose: Purpose,
    pub(crate) token: Token,
}

/// The messages of a client that are in the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sent {
    /// The nodes that processed a request for a grant, if each may do so only once.
    pub(crate) asked: NodeSet,
    /// Each node's grant, if the answer is still on its way; else 0.
    pub(crate) grants: [Token; MOST_NODES],
    /// The grant in the round's request to seal each node; 0 if there is none.
    pub(crate) seals: [Token; MOST_NODES],
    /// The round's token, in those requests.
    pub(crate) token: Token,
    /// The token that the latest reissue raises above; 0 if there is none.
    pub(crate) raise_above: Token,
    /// Each node's raised counter, if the answer is still on its way; else 0.
    pub(crate) raised: [Token; MOST_NODES],
    /// The token that the latest reissue seals, or a renewal that completes it; 0 if there is none.
    pub(crate) reissued: Token,
}

impl Client {
    /// Starts the round, if it has not started yet.
    ///
    /// The arrival of the first request is the latest possible start. An earlier start would demand
    /// less of the token, because fewer tokens would have been issued before it.
    pub(crate) fn start_round(&mut self, nodes: usize, issued_before: Token) {
        if self.phase == Phase::Idle {
            self.phase = Phase::Round;
            self.issued_before = issued_before;
            self.round = Some(Acquire::new(nodes));
        }
    }

    /// Receives a node's grant.
    pub(crate) fn receive_grant(&mut self, node: NodeId, grant: Token, fault: Option<Fault>) {
        let Some(round) = &self.round else { return };
        let grant = Fault::received_grant(fault, grant, round.token);
        self.count_in_round(node.index(), Answer::Granted(grant), fault);
    }

    /// Reports a node's answer to the round, and does what the round commands.
    pub(crate) fn count_in_round(&mut self, node: usize, answer: Answer, fault: Option<Fault>) {
        let Some(round) = &mut self.round else { return };
        for command in round.on(node, answer) {
            match command {
                acquire::Command::Seal(seal) if fault == Some(Fault::NoSeal) => {
                    self.count_in_round(seal.node, Answer::Sealed, fault);
                }
                acquire::Command::Seal(seal) => {
                    self.sent.seals[seal.node] = seal.grant;
                    self.sent.token = seal.token;
                }
                acquire::Command::Report(token) => self.grant = token,
                // The client may give up at any time here.
                acquire::Command::Fail => {}
            }
        }
    }

    /// Whether the round waits for this node's grant.
    pub(crate) fn awaits_grant(&self, node: NodeId) -> bool {
        matches!(self.phase, Phase::Round | Phase::Lease)
            && self.round.is_some_and(|round| round.votes[node.index()] == acquire::Vote::Open)
    }

    /// Whether the round waits for this node's seal.
    pub(crate) fn awaits_seal(&self, node: NodeId) -> bool {
        self.phase == Phase::Round
            && self.round.is_some_and(|round| round.votes[node.index()] == acquire::Vote::Sealing)
    }

    /// The nodes whose grant the client has received.
    pub(crate) fn granters(&self) -> NodeSet {
        self.round.map_or(NodeSet::EMPTY, |round| {
            NodeSet::from_condition(round.votes.len(), |node| {
                round.votes[node.index()] != acquire::Vote::Open
            })
        })
    }

    /// Whether the round has reported its token.
    pub(crate) fn can_acquire(&self) -> bool {
        self.phase == Phase::Round && self.grant != 0
    }

    pub(crate) fn acquire(&mut self) {
        self.phase = Phase::Lease;
        self.token = self.grant;
        self.lease = Some(LeaseTokens::new(self.grant));
        self.issued_before = 0;
    }

    /// Adopts another client's lease, with the token of its handle.
    pub(crate) fn adopt(&mut self, other: &Self) {
        self.has_adopted = true;
        self.grant = other.grant;
        self.acquire();
    }

    /// The holder of its lease. `own` is that of its round.
    pub(crate) fn owner(&self, own: Holder) -> Holder {
        if self.has_adopted { Holder(0) } else { own }
    }

    /// Gives up the round, or releases the lease. The release is now on its way to the nodes.
    pub(crate) fn end(&mut self) {
        if self.phase == Phase::Lease {
            self.phase = Phase::Released;
        } else {
            self.phase = Phase::GaveUp;
            self.token = self.round.and_then(|round| round.highest()).unwrap_or_default();
        }
        self.sent.grants = [0; _];
        self.stop();
    }

    /// Starts a renewal or a reissue. A reissue loses the messages of the one before it.
    pub(crate) fn start(&mut self, update: Update, issued_before: Token) {
        self.issued_before = issued_before;
        if let Request::Raise { above } = update.request() {
            self.reissues += 1;
            self.sent = Sent { raise_above: above, raised: [0; _], reissued: 0, ..self.sent };
        }
        self.update = Some(update);
    }

    /// Stops waiting for a renewal or a reissue. Its requests stay in the network.
    pub(crate) fn stop(&mut self) {
        self.issued_before = 0;
        self.update = None;
        self.returning = None;
        self.sent.raised = [0; _];
    }

    /// Reports an answer to the renewal or the reissue that is under way, and does what it commands.
    pub(crate) fn count(&mut self, event: Event, fault: Option<Fault>) {
        let (Some(update), Some(lease)) = (&mut self.update, &mut self.lease) else { return };
        let before = update.request();
        let purpose = update.purpose;
        for command in update.on(lease, Fault::received_event(fault, event, before)) {
            match command {
                Command::Learn { node, grant } => self.learn(node, grant),
                Command::Ask(Request::Seal { token })
                    if Fault::skips_seals_after(fault, before) =>
                {
                    self.pretend_seals(token, fault);
                }
                Command::Ask(request) => {
                    self.sent.raised = [0; _];
                    if let Request::Seal { token } = request {
                        self.sent.reissued = token;
                    }
                }
                // The lease may join nodes at any time here.
                Command::Renewed(_) => {}
                Command::Report(Report::Held(token)) if purpose != Purpose::Regain => {
                    self.update = None;
                    self.returning = Some(Returning { purpose, token });
                }
                Command::Report(_) => self.stop(),
            }
        }
    }

    /// A broken rule: the update takes all nodes for sealed, and none is asked.
    fn pretend_seals(&mut self, token: Token, fault: Option<Fault>) {
        let mut nodes = NodeId::first(MOST_NODES);
        while self.update.is_some()
            && let Some(node) = nodes.next()
        {
            let sealed = OwnerReply::Owned(Owned { number: token, floor: None });
            self.count(Event::Answer(node.index(), sealed), fault);
        }
    }

    /// The last request of the renewal or the reissue that is under way.
    pub(crate) fn request(&self) -> Option<Request> {
        self.update.map(|update| update.request())
    }

    /// Whether the renewal or the reissue waits for this node's answer to its last request.
    pub(crate) fn awaits_answer(&self, node: NodeId) -> bool {
        self.update.is_some_and(|update| update.votes.votes[node.index()] == Vote::Open)
    }

    /// Whether a renewal or a reissue has not returned.
    pub(crate) fn is_busy(&self) -> bool {
        self.update.is_some() || self.returning.is_some()
    }

    /// Returns the token of a renewal or a reissue.
    pub(crate) fn complete(&mut self, returning: Returning) {
        self.token = self.token.max(returning.token);
        self.stop();
    }

    /// The token that the lease's majority has sealed.
    pub(crate) fn height(&self) -> Token {
        self.lease.map_or(0, |lease| lease.height())
    }

    /// The grant under which the lease has the lock on this node, as far as the client knows.
    pub(crate) fn grant_on(&self, node: NodeId) -> Token {
        match self.other_grants[node.index()] {
            0 => self.grant,
            other => other,
        }
    }

    /// Learns the lease's grant on a node.
    pub(crate) fn learn(&mut self, node: usize, grant: Token) {
        self.other_grants[node] = if grant == self.grant { 0 } else { grant };
    }

    /// The token that its release raises the counters to.
    pub(crate) fn release_token(&self) -> Token {
        self.token.max(self.height())
    }

    /// Whether it has given up or released.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Released | Phase::GaveUp)
    }

    /// Whether it has acquired the lock, even if it has released it since.
    pub(crate) fn has_acquired(&self) -> bool {
        matches!(self.phase, Phase::Lease | Phase::Released)
    }
}

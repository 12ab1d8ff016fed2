//! Clients: one round each, its lease, and the lease's renewals.
//!
//! A client knows a change from the start, or reads it from any node that votes under it, also if
//! it is undecided. A round and a renewal use one change. Requests of another are rejected.

use super::{
    config::{ChangeId, Config},
    rules::VoteRule,
    state::State,
};
use crate::id::{MOST_NODES, NodeId, NodeSet, Token};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// The change that its requests name.
    pub(crate) change: ChangeId,
    /// The highest token issued before the round, or the renewal, started.
    pub(crate) issued_before: Token,
    /// Each node's grant; 0 if it has none.
    pub(crate) grants: [Token; MOST_NODES],
    /// The nodes that processed a request for a grant.
    pub(crate) asked: NodeSet,
    /// The token; 0 before it is fixed.
    pub(crate) token: Token,
    /// The sealed nodes, and later those of the last completed renewal.
    pub(crate) held: NodeSet,
    /// The nodes that a renewal under way has renewed.
    pub(crate) renewed: NodeSet,
    pub(crate) is_renewing: bool,
    /// The nodes whose admission waits for the end of the round or the lease.
    pub(crate) awaited_by: NodeSet,
    /// Those that wait for the renewal under way, too.
    pub(crate) renewal_awaited_by: NodeSet,
    /// The nodes that restarted after the round or the renewal started. They reject its requests.
    pub(crate) restarted: NodeSet,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Round,
    Lease,
    Ended,
}

impl Client {
    /// Whether a node votes for this client's requests under a change.
    pub(crate) fn has_vote(
        &self,
        config: &Config,
        state: &State,
        change: ChangeId,
        id: NodeId,
    ) -> bool {
        let member = state.member(id);
        let is_voter = match config.rules.vote {
            VoteRule::ComparesChange | VoteRule::CountsRemoved => member.votes_under(change),
            VoteRule::IgnoresChange => member.node.is_admitted(),
        };
        is_voter && !self.restarted.contains(id)
    }

    pub(crate) fn start(&mut self, change: ChangeId, issued_before: Token) {
        if self.phase == Phase::Idle {
            *self = Self { phase: Phase::Round, change, issued_before, ..Self::default() };
        }
    }

    /// A grant that equals the token is sealed.
    pub(crate) fn count_grants(&mut self) {
        let is_sealed = |id: NodeId| self.token != 0 && self.grants[id.index()] == self.token;
        let sealed = NodeSet::from_condition(MOST_NODES, is_sealed);
        sealed.iter().for_each(|id| self.held.insert(id));
    }

    pub(crate) fn acquire(&mut self) {
        self.phase = Phase::Lease;
        self.issued_before = 0;
        self.grants = [0; MOST_NODES];
        self.asked = NodeSet::EMPTY;
    }

    pub(crate) fn start_renewal(&mut self, change: ChangeId, issued_before: Token) {
        self.change = change;
        self.issued_before = issued_before;
        self.is_renewing = true;
        self.renewed = NodeSet::EMPTY;
        self.renewal_awaited_by = NodeSet::EMPTY;
        self.restarted = NodeSet::EMPTY;
    }

    pub(crate) fn complete_renewal(&mut self) {
        self.held = self.renewed;
        self.awaited_by = self.renewal_awaited_by;
        self.is_renewing = false;
        self.renewed = NodeSet::EMPTY;
        self.renewal_awaited_by = NodeSet::EMPTY;
        self.issued_before = 0;
    }

    pub(crate) fn end(&mut self, config: &Config) {
        let token = if config.releases { self.token } else { 0 };
        *self = Self { phase: Phase::Ended, token, ..Self::default() };
    }

    /// Whether its round, lease or renewal is under way.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Round | Phase::Lease)
    }

    /// From now on, a node's admission waits for what is under way.
    pub(crate) fn start_wait(&mut self, node: NodeId) {
        if self.is_active() {
            self.awaited_by.insert(node);
            if self.is_renewing {
                self.renewal_awaited_by.insert(node);
            }
        }
    }

    /// A node's admission does not wait any more.
    pub(crate) fn stop_wait(&mut self, node: NodeId) {
        self.awaited_by.remove(node);
        self.renewal_awaited_by.remove(node);
    }

    /// Whether the lock on a node may expire although its clock is right.
    pub(crate) fn may_expire(&self, id: NodeId) -> bool {
        match self.phase {
            Phase::Round => false,
            Phase::Lease => !self.held.contains(id) && !self.renewed.contains(id),
            Phase::Idle | Phase::Ended => true,
        }
    }
}

impl State {
    /// From now on, a node's admission waits for whatever is under way.
    pub(crate) fn start_wait(&mut self, node: NodeId) {
        self.clients.iter_mut().for_each(|client| client.start_wait(node));
    }

    /// Whether everything has ended that a node's admission waits for.
    pub(crate) fn wait_is_over(&self, node: NodeId) -> bool {
        let mut clients = self.clients.iter();
        clients.all(|client| !client.awaited_by.contains(node))
    }

    /// The changes that a client may know: the start, and those of any voter.
    pub(crate) fn known_changes(&self, config: &Config) -> impl Iterator<Item = ChangeId> {
        let is_known = |change: &ChangeId| *change == 0 || self.has_voters(config, *change);
        config.change_ids().filter(is_known)
    }
}

//! One state of a model of changes.

use super::{
    client::Client,
    config::{ChangeId, Config, MOST_CLIENTS, MOST_PROPOSERS},
    proposer::Proposer,
};
use crate::{
    history::History,
    id::{Holder, MOST_NODES, NodeId, NodeSet},
    node::{Node, Vote},
};

/// The nodes with their records, the clients, the proposers and the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) members: [Member; MOST_NODES],
    pub(crate) clients: [Client; MOST_CLIENTS],
    pub(crate) proposers: [Proposer; MOST_PROPOSERS],
    /// The number of restarts so far.
    pub(crate) restarts: u8,
    /// The nodes that have restarted.
    pub(crate) restarted: NodeSet,
    /// The decided changes, one bit each.
    pub(crate) decided: u8,
    pub(crate) history: History,
    /// Whether two changes were decided for one epoch.
    pub(crate) decided_twice: bool,
    /// Whether two clients had leases at the same time.
    pub(crate) leases_overlapped: bool,
}

/// A node with its record. A node without a vote has the record that it is prepared for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) node: Node,
    /// The change that made the node's epoch.
    pub(crate) change: ChangeId,
    /// The highest ballot that the node has promised.
    pub(crate) promised: u8,
    /// The ballot under which it accepted its change; 0 if it accepted none.
    pub(crate) accepted: u8,
}

impl State {
    /// The start of the cluster. All other nodes have no vote yet.
    pub(crate) fn new(config: &Config) -> Self {
        let mut state = Self { decided: 1, ..Self::default() };
        let members = config.members(0);
        for id in NodeId::first(MOST_NODES).filter(|id| !members.contains(*id)) {
            state.member_mut(id).node.restart();
        }
        state
    }

    pub(crate) fn member(&self, node: NodeId) -> &Member {
        &self.members[node.index()]
    }

    pub(crate) fn member_mut(&mut self, node: NodeId) -> &mut Member {
        &mut self.members[node.index()]
    }

    pub(crate) fn client(&self, holder: Holder) -> &Client {
        &self.clients[holder.index()]
    }

    pub(crate) fn is_decided(&self, change: ChangeId) -> bool {
        self.decided & 1 << change != 0
    }

    /// Whether a node votes under a change.
    pub(crate) fn has_voters(&self, config: &Config, change: ChangeId) -> bool {
        config.members(change).iter().any(|id| self.member(id).votes_under(change))
    }

    /// Whether no safety property has been violated. The model explores no step after that.
    pub(crate) fn is_safe(&self) -> bool {
        !self.history.has_violation() && !self.decided_twice && !self.leases_overlapped
    }
}

impl Member {
    pub(crate) fn votes_under(&self, change: ChangeId) -> bool {
        self.node.is_admitted() && self.change == change
    }

    /// Takes away the vote until the node is admitted into a change.
    pub(crate) fn prepare(&mut self, change: ChangeId) {
        self.node.vote = Vote::Withheld { copied_from: NodeSet::EMPTY };
        *self = Self { node: self.node, change, promised: 0, accepted: 0 };
    }
}

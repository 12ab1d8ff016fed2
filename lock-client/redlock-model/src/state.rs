//! One state of the whole model.

use crate::{
    client::Client,
    history::History,
    id::{Holder, MOST_CLIENTS, MOST_NODES, NodeId},
    node::Node,
};

/// The nodes, the clients, and the history of tokens.
///
/// The network has no state of its own: the clients' state determines which messages are in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    pub(crate) nodes: [Node; MOST_NODES],
    pub(crate) clients: [Client; MOST_CLIENTS],
    pub(crate) history: History,
}

impl State {
    pub(crate) fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.index()]
    }

    pub(crate) fn node_mut(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node.index()]
    }

    pub(crate) fn client(&self, holder: Holder) -> &Client {
        &self.clients[holder.index()]
    }

    pub(crate) fn client_mut(&mut self, holder: Holder) -> &mut Client {
        &mut self.clients[holder.index()]
    }
}

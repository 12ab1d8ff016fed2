//! Rounds and reissues that take one step each.
//!
//! Models with a storage use them to have fewer states. Claims and writes still reach the storage
//! in any order, and however late.

use std::cmp::Reverse;

use crate::{
    client::Sent,
    config::Config,
    id::{Holder, NodeId, NodeSet},
    network::{self, Message},
    state::State,
    updates,
};

/// Acquires the lock on all of these nodes: each grants, and those with a lower grant are sealed.
pub(crate) fn acquire(
    config: &Config,
    state: &mut State,
    holder: Holder,
    nodes: NodeSet,
) -> Option<()> {
    for node in highest_first(state, nodes) {
        network::deliver(config, state, holder, node, Message::Grant);
        if state.client(holder).sent.grants[node.index()] == 0 {
            return None;
        }
        network::deliver(config, state, holder, node, Message::GrantAnswer);
    }
    for node in nodes.iter() {
        if state.client(holder).sent.seals[node.index()] != 0 {
            network::deliver(config, state, holder, node, Message::Seal);
        }
    }
    let State { clients, history, .. } = state;
    let client = &mut clients[holder.index()];
    if !client.can_acquire() {
        return None;
    }
    history.issue(client.grant, client.issued_before);
    client.acquire();
    client.round = None;
    client.sent = Sent::default();
    Some(())
}

/// Reissues the token on all of these nodes, above the storage's fence.
pub(crate) fn reissue(
    config: &Config,
    state: &mut State,
    holder: Holder,
    nodes: NodeSet,
) -> Option<()> {
    updates::start_reissue(config, state, holder)?;
    let order = highest_first(state, nodes);
    for node in &order {
        network::deliver(config, state, holder, *node, Message::Raise);
        if state.client(holder).sent.raised[node.index()] == 0 {
            return None;
        }
    }
    for node in &order {
        if state.client(holder).sent.raised[node.index()] != 0 {
            network::deliver(config, state, holder, *node, Message::RaiseAnswer);
        }
    }
    for node in &order {
        network::deliver(config, state, holder, *node, Message::SealReissued);
    }
    updates::complete(config, state, holder)?;
    state.client_mut(holder).sent = Sent::default();
    Some(())
}

/// The nodes in the order of their counters. The first majority then has the highest of all answers.
fn highest_first(state: &State, nodes: NodeSet) -> Vec<NodeId> {
    let mut nodes: Vec<_> = nodes.iter().collect();
    nodes.sort_by_key(|node| Reverse(state.node(*node).counter));
    nodes
}

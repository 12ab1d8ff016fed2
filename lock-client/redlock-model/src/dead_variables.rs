//! Resets variables that can no longer change anything, so that states do not differ in them.
//!
//! Model checkers call this dead variable reduction. It is sound because a value is reset only if
//! every step that depends on it would change nothing, now or later.

use std::iter;

use crate::{
    client::{Client, Phase},
    config::{Config, Delivery},
    id::{Holder, NodeId, NodeSet},
    node::Node,
    protocol::{ReissueRule, ReleaseRule, SealRule},
    reissue::Reissue,
    state::State,
    storage::Storage,
};

/// Resets the dead variables of all clients.
pub(crate) fn reset(config: &Config, state: &mut State) {
    // Once no node can restart any more, no counter falls.
    let counters_only_grow = state.restarts == config.restarts;
    let State { nodes, clients, storage, .. } = state;
    for (client, number) in iter::zip(clients, 0..) {
        let holder = Holder(number);
        if config.storage {
            reset_rejected_claim(config, storage, client, holder);
        }
        // A late join may still take a node, and then late requests match it.
        if config.joins && client.has_acquired() {
            continue;
        }
        // Before the round ends, and with the seals of a negative control, every grant may matter.
        if matches!(client.phase, Phase::Idle | Phase::Round)
            || config.protocol.seal != SealRule::ComparesOwnership
        {
            continue;
        }

        let unaffected = NodeSet::from_condition(config.nodes, |id| {
            let node = &nodes[id.index()];
            // The node refuses this client for good.
            client.restarted.contains(id)
                || counters_only_grow && never_owns_again(node, client, holder, id)
        });
        for id in NodeId::first(config.nodes) {
            let knows_grant = client.has_ended() || client.received.contains(id);
            if knows_grant && (unaffected.contains(id) || !client.has_sent_seal(id)) {
                client.grants[id.index()] = 0;
            }
        }
        if client.has_ended() {
            let release_raises_none = counters_only_grow
                && nodes[..config.nodes].iter().all(|node| node.counter >= client.token);
            if release_raises_none && !may_claim(config, storage, client) {
                client.token = 0;
                client.phase = Phase::GaveUp;
            }
            reset_ended(config, client, unaffected);
        }
    }
}

/// The fence never falls, so a write that would be rejected now is always rejected.
fn reset_rejected_claim(config: &Config, storage: &Storage, client: &mut Client, holder: Holder) {
    let write = client.offer_of_write(holder);
    let rejected = !storage.would_accept(write, config.protocol.fence);
    // A client that resends rejected writes needs to know that it has claimed.
    let resends = config.protocol.reissue == ReissueRule::ResendsRejectedWrite;
    if rejected && (client.has_ended() || !resends) {
        client.claimed = 0;
        client.read = None;
    }
}

/// Whether the client's seals, renewals and raises can never match this node's lock again: they do
/// not match it now, and the node's next grant is higher than the client's.
fn never_owns_again(node: &Node, client: &Client, holder: Holder, id: NodeId) -> bool {
    let owns = node.is_owned_by(holder, client.grant)
        || client.has_sent_seal(id) && node.is_owned_by(holder, client.grants[id.index()]);
    !owns && node.counter >= client.grant
}

/// Whether a late claim of an ended client can still move the fence.
fn may_claim(config: &Config, storage: &Storage, client: &Client) -> bool {
    config.storage
        && client.phase == Phase::Released
        && storage.fence.is_none_or(|fence| client.token > fence.token)
}

/// Resets what only requests to the nodes depend on. They have no effect on the `unaffected` nodes.
fn reset_ended(config: &Config, client: &mut Client, unaffected: NodeSet) {
    client.asked = NodeSet::EMPTY;
    if unaffected.len() < config.nodes {
        return;
    }
    client.grant = 0;
    client.reissue = Reissue::default();
    if config.protocol.release == ReleaseRule::ToAllNodes {
        client.received = NodeSet::EMPTY;
    }
    if config.grant_requests == Delivery::Once {
        client.restarted = NodeSet::EMPTY;
    }
}

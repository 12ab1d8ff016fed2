//! Forgets what can't change anything any more, so that states don't differ in it.
//!
//! What is forgotten is in the network still, or a client still has it: but no step that it could lead
//! to would change a thing, now or later.

use std::iter;

use crate::{
    client::{Client, Phase, Reissue},
    config::{Config, Grants},
    id::{Holder, NODES, NodeId, Nodes},
    node::Node,
    state::State,
    variant::{self, Variant},
};

/// Forgets it.
pub(crate) fn forget(config: &Config, state: &mut State) {
    let Variant { seal, release, .. } = config.variant;
    let counters_only_grow = state.restarts == config.restarts;
    let State { nodes, clients, storage, .. } = state;
    for (client, holder) in iter::zip(clients, 0..) {
        let holder = Holder(holder);
        if config.storage {
            let offered = client.writes_as(holder);
            let refused = !{ *storage }.accepts(offered, config.variant.binding);
            // That it has claimed matters to a client that would send its write again.
            let resends = config.variant.reissue == variant::Reissue::Resends;
            if refused && (client.ended() || !resends) {
                client.claimed = 0;
                client.read = None;
            }
        }
        if matches!(client.phase, Phase::Idle | Phase::Round) || seal != variant::Seal::Ownership {
            continue;
        }

        let dead = Nodes::those(|id| {
            let node = &nodes[id.index()];
            refuses(config, client, id)
                || counters_only_grow
                    && !owned(node, client, holder, id)
                    && node.counter >= client.grant
        });
        for id in NodeId::all() {
            let heard = client.ended() || client.counted.contains(id);
            if heard && (dead.contains(id) || !client.seals(id)) {
                client.grants[id.index()] = 0;
            }
        }
        if !client.ended() {
            continue;
        }
        client.asked = Nodes::NONE;
        let raised = counters_only_grow && nodes.iter().all(|node| node.counter >= client.token);
        let claims = config.storage
            && client.phase == Phase::Released
            && storage.fence.is_none_or(|fence| client.token > fence.token);
        if raised && !claims {
            client.token = 0;
            client.phase = Phase::GaveUp;
        }
        if dead.len() == NODES {
            client.grant = 0;
            client.reissue = Reissue::default();
            if release == variant::Release::ToAll {
                client.counted = Nodes::NONE;
            }
            if config.grants == Grants::Once {
                client.restarted = Nodes::NONE;
            }
        }
    }
}

/// Whether a node refuses its vote to the client for good.
fn refuses(config: &Config, client: &Client, id: NodeId) -> bool {
    config.variant.admission != variant::Admission::None && client.restarted.contains(id)
}

/// Whether the lock on a node is one that seals, raises and the like of the client act on. A node where
/// it isn't, and that has counted as far as the lease's grant, won't have such a lock again: its next
/// grant is higher.
fn owned(node: &Node, client: &Client, holder: Holder, id: NodeId) -> bool {
    node.owns(holder, client.grant)
        || client.seals(id) && node.owns(holder, client.grants[id.index()])
}

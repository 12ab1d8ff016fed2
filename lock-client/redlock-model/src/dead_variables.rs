//! Resets variables that can no longer change anything, so that states do not differ in them.
//!
//! Model checkers call this dead variable reduction. It is sound because a value is reset only if
//! every step that depends on it would change nothing, now or later.
//!
//! One more reset forgets a rejection that the client has received and that decided nothing yet, as if
//! the network had lost it. The node may then answer again. So every behaviour remains, and some are
//! added: a model that holds with them holds without them.

use std::iter;

use crate::{
    client::{Client, Phase, Sent},
    config::Config,
    fault::Fault,
    id::{Holder, NodeId, NodeSet},
    node::Node,
    redlock::machines::{acquire::Vote, votes},
    state::State,
};

/// Resets the dead variables of all clients.
pub(crate) fn reset(config: &Config, state: &mut State) {
    let State { nodes, clients, .. } = state;
    for (client, number) in iter::zip(clients, 0..) {
        let holder = Holder(number);
        reset_round(config, client);
        reset_update(client);
        // A late join may still take a node, and then late requests match it. A shared lease may hold nodes
        // after its first client has ended.
        let is_shared = config.adopts && client.owner(holder) == Holder(0);
        if (config.joins || is_shared) && client.has_acquired() {
            continue;
        }
        // Before the round ends, and with the seals of a negative control, every seal may matter.
        let is_broken =
            matches!(config.fault, Some(Fault::SealComparesHolder | Fault::SealComparesNothing));
        if matches!(client.phase, Phase::Idle | Phase::Round) || is_broken {
            continue;
        }

        let unaffected = NodeSet::from_condition(config.nodes, |id| {
            let node = &nodes[id.index()];
            never_owns_again(node, client, holder, id)
        });
        for id in unaffected.iter() {
            client.sent.seals[id.index()] = 0;
        }
        if client.has_ended() {
            let raise_to = client.release_token();
            if nodes[..config.nodes].iter().all(|node| node.counter >= raise_to) {
                client.token = 0;
                client.lease = None;
                client.phase = Phase::GaveUp;
            }
            reset_ended(config.nodes, client, unaffected);
        }
    }
}

/// During its round, a client forgets rejected seals. After its round, a client only needs to know from
/// which nodes it has no answer yet: a late grant may still need a seal. After its end, it needs to know
/// which nodes have granted, if a release goes to them only.
fn reset_round(config: &Config, client: &mut Client) {
    if client.phase == Phase::Round {
        let Some(round) = &mut client.round else { return };
        for (vote, seal) in iter::zip(round.votes.iter_mut(), client.sent.seals) {
            if *vote == Vote::Against && seal != 0 {
                *vote = Vote::Sealing;
            }
        }
        return;
    }
    if client.has_ended() && config.fault != Some(Fault::ReleaseToKnownGranters) {
        client.round = None;
    }
    if let Some(round) = &mut client.round {
        for vote in round.votes.iter_mut().filter(|vote| **vote != Vote::Open) {
            *vote = Vote::Sealed;
        }
    }
}

/// A client forgets answers against its lease. So no renewal or reissue collects them one by one until
/// it is lost: the step `TimeOut` delivers them all at once.
fn reset_update(client: &mut Client) {
    if let Some(update) = &mut client.update {
        for vote in update.votes.votes.iter_mut() {
            if matches!(vote, votes::Vote::Uncounted(_) | votes::Vote::Free) {
                *vote = votes::Vote::Open;
            }
        }
    }
}

/// Whether the client's seals, renewals and raises can never match this node's lock again: they do
/// not match it now, and the node's next grant is higher than those that they name.
fn never_owns_again(node: &Node, client: &Client, holder: Holder, id: NodeId) -> bool {
    let named = [client.sent.seals[id.index()], client.sent.token, client.grant_on(id)];
    named.iter().all(|grant| !node.is_owned_by(holder, *grant) && node.counter >= *grant)
}

/// Resets what only requests to the nodes depend on. They have no effect on the `unaffected` nodes.
fn reset_ended(nodes: usize, client: &mut Client, unaffected: NodeSet) {
    client.sent.asked = NodeSet::EMPTY;
    if unaffected.len() < nodes {
        return;
    }
    client.grant = 0;
    client.other_grants = [0; _];
    client.reissues = 0;
    client.sent = Sent::default();
}

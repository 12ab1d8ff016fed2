//! Updates of a lease, which are renewals and reissues: how they start, and how they return.

use crate::{
    config::Config,
    id::{Holder, NodeId},
    network,
    redlock::machines::{
        regain::{Command, Regain},
        update::{Purpose, Update},
    },
    state::State,
};

pub(crate) fn start_renewal(config: &Config, state: &mut State, holder: Holder) -> Option<()> {
    let renewal = Update::renewal(config.nodes, &state.client(holder).lease?);
    start(state, holder, renewal);
    Some(())
}

pub(crate) fn start_reissue(config: &Config, state: &mut State, holder: Holder) -> Option<()> {
    let client = state.client(holder);
    let reissue = Update::reissue(config.nodes, &client.lease?, client.token);
    start(state, holder, reissue);
    Some(())
}

/// Receives a node's late answer to a renewal, and starts the reissue that makes this node count, if
/// it needs one.
pub(crate) fn start_regain(
    config: &Config,
    state: &mut State,
    holder: Holder,
    id: NodeId,
) -> Option<()> {
    let State { clients, nodes, .. } = state;
    let (client, node) = (&mut clients[holder.index()], &nodes[id.index()]);
    let owner = client.owner(holder);
    let renewed = node.renew(owner, client.grant_on(id));
    let lease = client.lease?;
    let mut regain = Regain::default();
    match regain.on(id.index(), network::reply(renewed, node, owner)) {
        Some(Command::Learn { node, grant }) => client.learn(node, grant),
        // Joins are in the network at any time here.
        Some(Command::Join { .. }) => return None,
        None => {
            let floor = regain.reissue_above(&lease)?;
            start(state, holder, Update::regain(config.nodes, &lease, floor));
        }
    }
    Some(())
}

fn start(state: &mut State, holder: Holder, update: Update) {
    let issued_before = if is_shared(state, holder) {
        state.history.highest_unshared()
    } else {
        state.history.highest_issued()
    };
    state.client_mut(holder).start(update, issued_before);
}

/// Returns the token of a renewal or a reissue. A renewal may return the token that the client has.
pub(crate) fn complete(state: &mut State, holder: Holder) -> Option<()> {
    let is_shared = is_shared(state, holder);
    let State { clients, history, .. } = state;
    let client = &mut clients[holder.index()];
    let returning = client.returning?;
    if is_shared {
        // The other process may have reissued the token, and this one may return an earlier one.
        history.prolong(client.token.max(history.highest_shared()), client.issued_before);
        history.prolong(returning.token, client.issued_before);
    } else {
        history.prolong(client.token, client.issued_before);
    }
    if returning.purpose == Purpose::Reissue || returning.token != client.token {
        if is_shared {
            history.issue_to_shared(returning.token, client.issued_before);
        } else {
            history.issue(returning.token, client.issued_before);
        }
    }
    client.complete(returning);
    Some(())
}

/// Whether two clients have this client's lease.
fn is_shared(state: &State, holder: Holder) -> bool {
    let mut clients = state.clients.iter();
    state.client(holder).owner(holder) == Holder(0) && clients.any(|client| client.has_adopted)
}

//! The steps: which are possible in a state, and what each does.

use std::cmp::Reverse;

use crate::{
    client::{Client, Phase, Sent},
    config::Config,
    id::{Holder, NodeId, NodeSet},
    network::{self, Message},
    state::State,
    updates,
};

/// One step of a client, a node or the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// A client concludes that it holds the lock: its acquire returns the token.
    Acquire(Holder),
    /// A client gives up its round, or releases its lease.
    End(Holder),
    /// A client adopts the lease of the first client, and renews it beside that one.
    Adopt(Holder),
    /// A client starts a renewal.
    StartRenewal(Holder),
    /// A client starts a reissue.
    StartReissue(Holder),
    /// A client starts a reissue that only makes joined nodes count: it has learned this node's floor.
    StartRegain(Holder, NodeId),
    /// A renewal or a reissue returns its token.
    Complete(Holder),
    /// A renewal or a reissue gets no more answers, except from nodes that reject it now.
    TimeOut(Holder),
    /// A client stops waiting for a renewal or a reissue.
    Stop(Holder),
    /// A client acquires the lock on these nodes, in one step.
    AcquireAtomically(Holder, NodeSet),
    /// The network delivers a message between a client and a node.
    Deliver(Holder, NodeId, Message),
    /// A node's lock expires.
    Expire(NodeId),
    /// The failed try of another client raises the counter of a free node.
    FailedTry(NodeId),
}

/// Adds all possible steps. Some of them change nothing.
pub(crate) fn add_enabled(config: &Config, state: &State, actions: &mut Vec<Action>) {
    for holder in (0..config.clients as u8).map(Holder) {
        add_client_steps(config, state, holder, actions);
        for node in NodeId::first(config.nodes) {
            let messages = network::messages(config, state, holder, node);
            actions.extend(messages.map(|message| Action::Deliver(holder, node, message)));
        }
    }
    NodeId::first(config.nodes).for_each(|node| add_node_steps(config, state, node, actions));
}

fn add_client_steps(config: &Config, state: &State, holder: Holder, actions: &mut Vec<Action>) {
    let client = state.client(holder);
    match client.phase {
        Phase::Round => {
            if client.can_acquire() {
                actions.push(Action::Acquire(holder));
            }
            actions.push(Action::End(holder));
        }
        Phase::Lease => {
            actions.push(Action::End(holder));
            if client.returning.is_some() {
                actions.push(Action::Complete(holder));
            }
            if client.update.is_some() {
                actions.push(Action::TimeOut(holder));
            }
            if client.is_busy() {
                actions.push(Action::Stop(holder));
            } else {
                add_updates(config, state, holder, actions);
            }
        }
        Phase::Idle if config.adopts && holder.index() + 1 == config.clients => {
            let first = state.client(Holder(0));
            if first.phase == Phase::Lease && !first.is_busy() && first.reissues == 0 {
                actions.push(Action::Adopt(holder));
            }
        }
        Phase::Idle if config.atomic_acquires => {
            let majorities = NodeSet::all_majorities(config.nodes);
            actions.extend(majorities.map(|nodes| Action::AcquireAtomically(holder, nodes)));
        }
        Phase::Idle | Phase::Released | Phase::GaveUp => {}
    }
}

fn add_updates(config: &Config, state: &State, holder: Holder, actions: &mut Vec<Action>) {
    let client = state.client(holder);
    // Beside a shared lease, the others only acquire.
    if config.adopts && client.owner(holder) != Holder(0) {
        return;
    }
    if config.renewals && may_matter(state, client) {
        actions.push(Action::StartRenewal(holder));
    }
    if client.reissues < config.reissues {
        actions.push(Action::StartReissue(holder));
        if config.joins {
            let nodes = NodeId::first(config.nodes);
            actions.extend(nodes.map(|node| Action::StartRegain(holder, node)));
        }
    }
}

/// Whether a renewal that starts now may violate a property, or find another token. Others are left
/// out: they change nothing.
fn may_matter(state: &State, client: &Client) -> bool {
    state.history.highest_issued() > client.token || client.reissues > 0
}

fn add_node_steps(config: &Config, state: &State, node: NodeId, actions: &mut Vec<Action>) {
    if state.node(node).lock.is_some() && config.expiry {
        actions.push(Action::Expire(node));
    }
    if config.failed_tries && state.node(node).lock.is_none() {
        actions.push(Action::FailedTry(node));
    }
}

/// Applies a step. Returns `None` if the step turns out to be impossible.
pub(crate) fn apply(config: &Config, state: &mut State, action: Action) -> Option<()> {
    match action {
        Action::Acquire(holder) => {
            let client = &mut state.clients[holder.index()];
            state.history.issue(client.grant, client.issued_before);
            client.acquire();
        }
        Action::Adopt(holder) => {
            let first = *state.client(Holder(0));
            state.client_mut(holder).adopt(&first);
            state.history.share(first.grant);
        }
        Action::End(holder) => state.client_mut(holder).end(),
        Action::StartRenewal(holder) => updates::start_renewal(config, state, holder)?,
        Action::StartReissue(holder) => updates::start_reissue(config, state, holder)?,
        Action::StartRegain(holder, node) => {
            updates::start_regain(config, state, holder, node)?;
        }
        Action::Complete(holder) => updates::complete(state, holder)?,
        Action::TimeOut(holder) => network::time_out(config, state, holder),
        Action::Stop(holder) => state.client_mut(holder).stop(),
        Action::AcquireAtomically(holder, nodes) => {
            acquire_atomically(config, state, holder, nodes)?;
        }
        Action::Deliver(holder, node, message) => {
            network::deliver(config, state, holder, node, message);
        }
        Action::Expire(node) => state.node_mut(node).lock = None,
        Action::FailedTry(node) => state.node_mut(node).counter += 1,
    }
    Some(())
}

/// Acquires the lock on all of these nodes: each grants, and those with a lower grant are sealed.
fn acquire_atomically(
    config: &Config,
    state: &mut State,
    holder: Holder,
    nodes: NodeSet,
) -> Option<()> {
    // The first majority then has the highest of all answers.
    let mut highest_first: Vec<_> = nodes.iter().collect();
    highest_first.sort_by_key(|node| Reverse(state.node(*node).counter));
    for node in highest_first {
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

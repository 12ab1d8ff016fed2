//! The steps that are possible in a state.

use crate::{
    action::Action,
    client::{Client, Phase},
    config::{Config, Rounds},
    id::{Holder, NodeId, NodeSet},
    network,
    state::State,
};

/// Adds all possible steps. Some of them change nothing.
pub(crate) fn add_enabled(config: &Config, state: &State, actions: &mut Vec<Action>) {
    for holder in (0..config.clients as u8).map(Holder) {
        if config.storage {
            add_storage_steps(state, holder, actions);
        }
        match config.rounds {
            Rounds::StepByStep | Rounds::AtomicAcquires => {
                add_client_steps(config, state, holder, actions);
                for node in NodeId::first(config.nodes) {
                    let messages = network::messages(config, state, holder, node);
                    actions.extend(messages.map(|message| Action::Deliver(holder, node, message)));
                }
            }
            // No release is delivered here: expiry frees the same locks.
            Rounds::Atomic => add_atomic_steps(config, state, holder, actions),
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
        Phase::Idle if config.rounds == Rounds::AtomicAcquires => {
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

fn add_atomic_steps(config: &Config, state: &State, holder: Holder, actions: &mut Vec<Action>) {
    let client = state.client(holder);
    let majorities = NodeSet::all_majorities(config.nodes);
    match client.phase {
        Phase::Idle => {
            actions.extend(majorities.map(|nodes| Action::AcquireAtomically(holder, nodes)));
        }
        Phase::Lease => {
            actions.push(Action::End(holder));
            if client.reissues < config.reissues {
                actions.extend(majorities.map(|nodes| Action::ReissueAtomically(holder, nodes)));
            }
        }
        Phase::Round | Phase::Released | Phase::GaveUp => {}
    }
}

/// A claim or a write may be late, and may be delivered more than once.
fn add_storage_steps(state: &State, holder: Holder, actions: &mut Vec<Action>) {
    let client = state.client(holder);
    if client.has_acquired() {
        actions.push(Action::Claim(holder));
    }
    if client.claimed != 0 {
        actions.push(Action::Write(holder));
    }
}

fn add_node_steps(config: &Config, state: &State, node: NodeId, actions: &mut Vec<Action>) {
    if state.node(node).lock.is_some() && config.expiry {
        actions.push(Action::Expire(node));
    }
    if state.losses < config.losses {
        actions.push(Action::Lose(node));
    }
    if config.failed_tries && state.node(node).lock.is_none() {
        actions.push(Action::FailedTry(node));
    }
}

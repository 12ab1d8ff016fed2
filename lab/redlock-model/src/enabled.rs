//! Which steps there are in a state.

use crate::{
    action::Action,
    client::Phase,
    config::{Config, Rounds},
    id::{Holder, MAJORITY, NODES, NodeId, Nodes},
    network, node,
    state::State,
    variant::{Admission, Expiry},
};

/// Adds the steps that there are in a state. Some of them would change nothing.
pub(crate) fn add_actions(config: &Config, state: &State, actions: &mut Vec<Action>) {
    for holder in (0..config.clients as u8).map(Holder) {
        if config.storage {
            storage_steps(state, holder, actions);
        }
        match config.rounds {
            Rounds::StepByStep => {
                client_steps(config, state, holder, actions);
                for node in NodeId::all() {
                    let messages = network::messages(config, state, holder, node);
                    actions.extend(messages.map(|message| Action::Deliver(holder, node, message)));
                }
            }
            // A release frees no more than expiry does.
            Rounds::AtOnce => client_steps_at_once(config, state, holder, actions),
        }
    }
    NodeId::all().for_each(|node| node_steps(config, state, node, actions));
}

fn client_steps(config: &Config, state: &State, holder: Holder, actions: &mut Vec<Action>) {
    let client = state.client(holder);
    let variant = &config.variant;
    match client.phase {
        Phase::Round => {
            if client.has_lock(variant) {
                actions.push(Action::Acquire(holder));
            }
            actions.push(Action::End(holder));
        }
        Phase::Lease => {
            actions.push(Action::End(holder));
            if client.has_reissued(variant) {
                actions.push(Action::Reissue(holder));
            }
            if client.reissue.under_way {
                // Otherwise to wait for ever comes to the same.
                if config.renewals || config.restarts > 0 {
                    actions.push(Action::GiveUpReissue(holder));
                }
            } else if client.reissue.begun < config.reissues {
                actions.push(Action::BeginReissue(holder));
            }
            if client.renewed().is_some() {
                actions.push(Action::Renew(holder));
            }
            if client.renewals != [0; NODES] {
                actions.push(Action::GiveUpRenewal(holder));
            }
        }
        Phase::Idle | Phase::Released | Phase::GaveUp => {}
    }
}

fn client_steps_at_once(config: &Config, state: &State, holder: Holder, actions: &mut Vec<Action>) {
    let client = state.client(holder);
    match client.phase {
        Phase::Idle => {
            actions.extend(Nodes::majorities().map(|nodes| Action::AcquireAtOnce(holder, nodes)))
        }
        Phase::Lease => {
            actions.push(Action::End(holder));
            if client.reissue.begun < config.reissues {
                actions
                    .extend(Nodes::majorities().map(|nodes| Action::ReissueAtOnce(holder, nodes)));
            }
        }
        _ => {}
    }
}

/// Claims and writes may be late, and come again.
fn storage_steps(state: &State, holder: Holder, actions: &mut Vec<Action>) {
    let client = state.client(holder);
    if matches!(client.phase, Phase::Lease | Phase::Released) {
        actions.push(Action::Claim(holder));
    }
    if client.claimed != 0 {
        actions.push(Action::Write(holder));
    }
}

fn node_steps(config: &Config, state: &State, node: NodeId, actions: &mut Vec<Action>) {
    let variant = &config.variant;
    if state.node(node).lock.is_some() && variant.expiry == Expiry::AnyMoment {
        actions.push(Action::Expire(node));
    }
    if state.restarts < config.restarts {
        actions.push(Action::Restart(node));
    }
    let node::Admission::Waiting { copied } = state.node(node).admission else { return };
    let over = state.clients.iter().all(|client| !client.waits_since_before_restart(node));
    if over || variant.admission != Admission::WaitsThenCopies {
        let others = NodeId::all().filter(|other| *other != node);
        let others = others.filter(|other| state.node(*other).admitted());
        actions.extend(others.map(|from| Action::Copy { to: node, from }));
    }
    if over && copied.len() >= MAJORITY {
        actions.push(Action::Admit(node));
    }
}

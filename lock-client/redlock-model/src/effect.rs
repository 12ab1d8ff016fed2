//! The effect of each step.

use crate::{
    action::Action, atomic, client::Phase, config::Config, id::Holder, network, node::Node,
    state::State, storage::Fence, updates,
};

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
        Action::Complete(holder) => updates::complete(config, state, holder)?,
        Action::TimeOut(holder) => network::time_out(config, state, holder),
        Action::Stop(holder) => state.client_mut(holder).stop(),
        Action::AcquireAtomically(holder, nodes) => {
            atomic::acquire(config, state, holder, nodes)?;
        }
        Action::ReissueAtomically(holder, nodes) => {
            atomic::reissue(config, state, holder, nodes)?;
        }
        Action::Deliver(holder, node, message) => {
            network::deliver(config, state, holder, node, message);
        }
        Action::Claim(holder) => claim(config, state, holder),
        Action::Write(holder) => write(config, state, holder),
        Action::Expire(node) => state.node_mut(node).lock = None,
        Action::FailedTry(node) => state.node_mut(node).counter += 1,
        Action::Lose(node) => {
            state.losses += 1;
            *state.node_mut(node) = Node::default();
        }
    }
    Some(())
}

/// A fenced read: claims and reads in one step. The answer reaches the client only during its
/// lease.
fn claim(config: &Config, state: &mut State, holder: Holder) {
    let State { clients, storage, .. } = state;
    let client = &mut clients[holder.index()];
    let offered = Fence { token: client.token, holder };
    if storage.accept(offered, config.fault) && client.phase == Phase::Lease {
        client.claimed = client.token;
        client.read = storage.value;
    }
}

fn write(config: &Config, state: &mut State, holder: Holder) {
    let State { clients, storage, history, .. } = state;
    let client = &clients[holder.index()];
    let write = client.offer_of_write(holder);
    // A repeated write changes nothing.
    if storage.accept(write, config.fault) && storage.value != Some(write) {
        // The claim read the value, or the client wrote it itself.
        let knows_value = storage.value == client.read
            || storage.value.is_some_and(|value| value.holder == holder);
        history.write_lost |= !knows_value;
        storage.value = Some(write);
    }
}

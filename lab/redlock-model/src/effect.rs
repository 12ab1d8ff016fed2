//! What each step does.

use crate::{
    action::Action,
    at_once,
    client::Phase,
    config::Config,
    id::{Holder, NODES},
    network,
    node::Admission,
    state::State,
    storage::Fence,
    variant,
};

/// Takes a step; `None` if it can't be taken after all.
pub(crate) fn take(config: &Config, state: &mut State, action: Action) -> Option<()> {
    let told = state.history.highest_told();
    match action {
        Action::Acquire(holder) => {
            let client = &mut state.clients[holder.index()];
            state.history.tell(client.grant, client.told_before);
            client.acquire();
        }
        Action::End(holder) => state.client_mut(holder).end(),
        Action::Renew(holder) => {
            let client = &mut state.clients[holder.index()];
            let token = client.renewed()?;
            state.history.tell(token, 0);
            client.renew(token);
        }
        Action::GiveUpRenewal(holder) => state.client_mut(holder).renewals = [0; NODES],
        Action::BeginReissue(holder) => {
            let seen = state.storage.highest_token();
            let client = state.client_mut(holder);
            client.begin_reissue(seen.max(client.token), told);
        }
        Action::Reissue(holder) => {
            let client = &mut state.clients[holder.index()];
            state.history.tell(client.reissue.token, client.reissue.told_before);
            client.reissued(&config.variant);
        }
        Action::GiveUpReissue(holder) => state.client_mut(holder).end_reissue(),
        Action::AcquireAtOnce(holder, nodes) => {
            at_once::acquire(config, state, holder, nodes)?;
        }
        Action::ReissueAtOnce(holder, nodes) => {
            at_once::reissue(config, state, holder, nodes)?;
        }
        Action::Deliver(holder, node, message) => {
            network::deliver(config, state, holder, node, message);
        }
        Action::Claim(holder) => claim(config, state, holder),
        Action::Write(holder) => write(config, state, holder),
        Action::Expire(node) => state.node_mut(node).lock = None,
        Action::Restart(node) => {
            state.restarts += 1;
            state.node_mut(node).restart();
            if config.variant.admission != variant::Admission::None {
                let begun = state.clients.iter_mut().filter(|client| client.phase != Phase::Idle);
                begun.for_each(|client| client.restarted.insert(node));
            }
        }
        Action::Copy { to, from } => {
            let counter = state.node(from).counter;
            state.node_mut(to).copy(counter, from);
        }
        Action::Admit(node) => state.node_mut(node).admission = Admission::Admitted,
    }
    Some(())
}

/// Claims and reads in one step. A client that is over doesn't hear of it.
fn claim(config: &Config, state: &mut State, holder: Holder) {
    let State { clients, storage, .. } = state;
    let client = &mut clients[holder.index()];
    let offered = Fence { token: client.token, holder };
    if storage.accepts(offered, config.variant.binding) && client.phase == Phase::Lease {
        client.claimed = client.token;
        client.read = storage.value;
    }
}

fn write(config: &Config, state: &mut State, holder: Holder) {
    let State { clients, storage, history, .. } = state;
    let client = &clients[holder.index()];
    let write = client.writes_as(holder);
    // A write that comes again changes nothing.
    if storage.accepts(write, config.variant.binding) && storage.value != Some(write) {
        let knows = storage.value == client.read
            || storage.value.is_some_and(|value| value.holder == holder);
        history.write_lost |= !knows;
        storage.value = Some(write);
    }
}

//! The model: what each step does.

use stateright::{Model, Property};

use crate::{
    action::{Action, add_actions},
    at_once,
    client::Phase,
    config::{Config, Judged},
    id::{Holder, NodeId},
    network,
    node::{Admission, NODES},
    oblivion::forget,
    properties::{self, Reached},
    state::State,
    storage::Fence,
    symmetry::representative,
    variant,
};

/// Fenced Redlock.
#[derive(Debug)]
pub struct Redlock {
    pub(crate) config: Config,
    pub(crate) reached: Reached,
}

impl Redlock {
    /// Makes a model.
    pub fn new(config: Config) -> Self {
        Self { config, reached: Reached::default() }
    }

    /// Claims and reads in one step. A client that is over doesn't hear of it.
    fn claim(&self, state: &mut State, holder: Holder) {
        let State { clients, storage, .. } = state;
        let client = &mut clients[holder.index()];
        let offered = Fence { token: client.token, holder };
        if storage.accepts(offered, self.config.variant.binding) && client.phase == Phase::Lease {
            client.claimed = client.token;
            client.read = storage.value;
        }
    }

    fn write(&self, state: &mut State, holder: Holder) {
        let State { clients, storage, history, .. } = state;
        let client = &clients[holder.index()];
        let write = client.writes_as(holder);
        // A write that comes again changes nothing.
        if storage.accepts(write, self.config.variant.binding) && storage.value != Some(write) {
            let knows = storage.value == client.read
                || storage.value.is_some_and(|value| value.holder == holder);
            history.write_lost |= !knows;
            storage.value = Some(write);
        }
    }
}

impl Model for Redlock {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let counters = 0..=self.config.uneven_start;
        let mut states = vec![State::default()];
        for node in NodeId::all() {
            let with = |state: &State, counter| {
                let mut state = *state;
                state.node_mut(node).counter = counter;
                state
            };
            states = states
                .iter()
                .flat_map(|state| counters.clone().map(move |counter| with(state, counter)))
                .collect();
        }
        // All else being equal, no order of the nodes is different from another.
        states.retain(|state| state.nodes.is_sorted_by_key(|node| node.counter));
        states
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.history.is_broken() {
            add_actions(&self.config, state, actions);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let config = &self.config;
        let mut state = *before;
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
                at_once::acquire(config, &mut state, holder, nodes)?;
            }
            Action::ReissueAtOnce(holder, nodes) => {
                at_once::reissue(config, &mut state, holder, nodes)?;
            }
            Action::Deliver(holder, node, message) => {
                network::deliver(config, &mut state, holder, node, message);
            }
            Action::Claim(holder) => self.claim(&mut state, holder),
            Action::Write(holder) => self.write(&mut state, holder),
            Action::Expire(node) => state.node_mut(node).lock = None,
            Action::Restart(node) => {
                state.restarts += 1;
                state.node_mut(node).restart();
                if config.variant.admission != variant::Admission::None {
                    let begun =
                        state.clients.iter_mut().filter(|client| client.phase != Phase::Idle);
                    begun.for_each(|client| client.restarted.insert(node));
                }
            }
            Action::Copy { to, from } => {
                let counter = state.node(from).counter;
                state.node_mut(to).copy(counter, from);
            }
            Action::Admit(node) => state.node_mut(node).admission = Admission::Admitted,
        }
        if config.judged == Judged::Writes {
            state.history.forget_tokens();
        }
        if state.nodes.iter().any(|node| node.counter > config.highest_counter) {
            return None;
        }
        forget(config, &mut state);
        if config.symmetry {
            state = representative(&state, config.clients);
        }
        // What changes nothing is no step.
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::properties()
    }
}

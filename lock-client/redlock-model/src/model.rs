//! The model that stateright explores.

use stateright::Model;

use crate::{
    check::{CheckLiveness, Explore, Explored, Report, explore},
    client::Phase,
    config::Config,
    dead_variables,
    fault::Fault,
    id::NodeId,
    liveness::{self, LivenessReport},
    properties::Situation,
    state::State,
    steps::{self, Action, add_enabled},
    symmetry,
};

/// Fenced Redlock, within the limits of a [`Config`].
#[derive(Debug)]
pub(crate) struct Redlock {
    pub(crate) config: Config,
}

impl Model for Redlock {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let counters = 0..=self.config.highest_initial_counter;
        let mut states = vec![State::default()];
        for node in NodeId::first(self.config.nodes) {
            let with_counter = |state: &State, counter| {
                let mut state = *state;
                state.node_mut(node).counter = counter;
                state
            };
            states = states
                .iter()
                .flat_map(|state| counters.clone().map(move |counter| with_counter(state, counter)))
                .collect();
        }
        // The nodes differ in their counters only, so one order of them is enough.
        let nodes = self.config.nodes;
        states.retain(|state| state.nodes[..nodes].is_sorted_by_key(|node| node.counter));
        states
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.history.violated().is_empty() {
            add_enabled(&self.config, state, actions);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let config = &self.config;
        let mut state = *before;
        steps::apply(config, &mut state, action)?;
        // An action that changes nothing is not a step.
        if state == *before {
            return None;
        }
        if state.nodes.iter().any(|node| node.counter > config.highest_counter) {
            return None;
        }
        dead_variables::reset(config, &mut state);
        // Where a lease is adopted, its two clients are not like others.
        let alike = if config.adopts { 0 } else { config.clients };
        state = symmetry::representative(&state, config.nodes, alike);
        (state != *before).then_some(state)
    }
}

impl Explore for Config {
    type Situation = Situation;
    type Fault = Fault;

    fn with_fault(self, fault: Self::Fault) -> Self {
        Self { fault: Some(fault), ..self }
    }

    fn explore(self, threads: usize) -> Report<Situation> {
        let explored = Explored {
            model: Redlock { config: self },
            violated: |_, state| state.history.violated(),
            situations: &Situation::ALL,
            occurs: |model, situation, state| situation.occurs_in(state, model.config.nodes),
        };
        explore(explored, threads)
    }
}

impl CheckLiveness for Config {
    /// A path is required if a client has not started its round, and no counter is at its limit.
    fn check_liveness(self) -> LivenessReport {
        liveness::check(
            &Redlock { config: self },
            |action| matches!(action, Action::Acquire(_)),
            |state| {
                let clients = &state.clients[..self.clients];
                clients.iter().any(|client| client.phase == Phase::Idle)
                    && state.nodes.iter().all(|node| node.counter < self.highest_counter)
            },
        )
    }
}

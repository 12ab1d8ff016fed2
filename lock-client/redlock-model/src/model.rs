//! The model that stateright explores.

use std::sync::atomic::{AtomicBool, Ordering};

use stateright::{Model, Property};

use crate::{
    action::Action,
    config::{Checked, Config},
    dead_variables, effect,
    enabled::add_enabled,
    id::NodeId,
    properties::{NO_LEASE_OUTLIVES, NO_WRITE_IS_LOST, Situation, TOKENS_ARE_UNIQUE, TOKENS_GROW},
    state::State,
    symmetry,
};

/// Fenced Redlock, within the limits of a [`Config`].
#[derive(Debug)]
pub struct Redlock {
    config: Config,
    /// Whether each situation has occurred. stateright stores the steps to every state that
    /// satisfies a `sometimes` property, and only the first is of use.
    occurred: [AtomicBool; Situation::COUNT],
}

impl Redlock {
    /// A model with the given limits.
    pub fn new(config: Config) -> Self {
        Self { config, occurred: Default::default() }
    }

    /// Whether this is the first state in which the situation occurs.
    fn occurs_first(&self, situation: Situation, state: &State) -> bool {
        let occurred = &self.occurred[situation as usize];
        !occurred.load(Ordering::Relaxed)
            && situation.occurs_in(state, self.config.nodes)
            && !occurred.swap(true, Ordering::Relaxed)
    }
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
        if !state.history.has_violation() {
            add_enabled(&self.config, state, actions);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let config = &self.config;
        let mut state = *before;
        effect::apply(config, &mut state, action)?;
        // An action that changes nothing is not a step.
        if state == *before {
            return None;
        }
        if config.checked == Checked::WritesOnly {
            state.history.forget_tokens();
        }
        if state.nodes.iter().any(|node| node.counter > config.highest_counter) {
            return None;
        }
        dead_variables::reset(config, &mut state);
        if config.symmetry {
            state = symmetry::representative(&state, config.nodes, config.clients);
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        use Situation::*;
        vec![
            Property::always(TOKENS_ARE_UNIQUE, |_, state: &State| !state.history.token_repeated),
            Property::always(TOKENS_GROW, |_, state: &State| !state.history.token_fell),
            Property::always(NO_LEASE_OUTLIVES, |_, state: &State| !state.history.lease_outlived),
            Property::always(NO_WRITE_IS_LOST, |_, state: &State| !state.history.write_lost),
            Property::sometimes(TwoLeases.name(), |model, state| {
                model.occurs_first(TwoLeases, state)
            }),
            Property::sometimes(SealNeeded.name(), |model, state| {
                model.occurs_first(SealNeeded, state)
            }),
            Property::sometimes(LateGrant.name(), |model, state| {
                model.occurs_first(LateGrant, state)
            }),
            Property::sometimes(Reissued.name(), |model, state| {
                model.occurs_first(Reissued, state)
            }),
            Property::sometimes(RenewedWithNewToken.name(), |model, state| {
                model.occurs_first(RenewedWithNewToken, state)
            }),
            Property::sometimes(AdmittedAgain.name(), |model, state| {
                model.occurs_first(AdmittedAgain, state)
            }),
            Property::sometimes(Regained.name(), |model, state| {
                model.occurs_first(Regained, state)
            }),
        ]
    }
}

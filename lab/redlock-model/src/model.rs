//! The model that stateright checks.

use std::sync::atomic::{AtomicBool, Ordering};

use stateright::{Model, Property};

use crate::{
    action::Action,
    config::{Config, Judged},
    effect,
    enabled::add_actions,
    id::NodeId,
    oblivion::forget,
    properties::{
        ADMITTED, GROWING, LATE_GRANT, NOTHING_LOST, REISSUED, RENEWED, SEALED, TWO_LEASES, UNIQUE,
        admitted, late_grant, reissued, renewed, sealed, two_leases,
    },
    state::State,
    symmetry::representative,
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
}

/// Which situations have been reached, for stateright notes each state in which one holds, with the
/// way to it: only the first is of use.
#[derive(Debug, Default)]
pub(crate) struct Reached([AtomicBool; 6]);

impl Reached {
    fn first(&self, situation: usize, holds: bool) -> bool {
        let reached = &self.0[situation];
        holds && !reached.load(Ordering::Relaxed) && !reached.swap(true, Ordering::Relaxed)
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
        effect::take(config, &mut state, action)?;
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
        vec![
            Property::always(UNIQUE, |_, state: &State| !state.history.repeated),
            Property::always(GROWING, |_, state: &State| !state.history.fell),
            Property::always(NOTHING_LOST, |_, state: &State| !state.history.write_lost),
            Property::sometimes(TWO_LEASES, |model, state| {
                model.reached.first(0, two_leases(state))
            }),
            Property::sometimes(SEALED, |model, state| model.reached.first(1, sealed(state))),
            Property::sometimes(LATE_GRANT, |model, state| {
                model.reached.first(2, late_grant(state))
            }),
            Property::sometimes(REISSUED, |model, state| model.reached.first(3, reissued(state))),
            Property::sometimes(RENEWED, |model, state| model.reached.first(4, renewed(state))),
            Property::sometimes(ADMITTED, |model, state| model.reached.first(5, admitted(state))),
        ]
    }
}

//! Checks that there is always a way to acquire the lock again.
//!
//! stateright cannot express this: it checks what happens on every path, not whether a path exists.
//! So this module stores the graph of all states, and walks it backwards from the states in which a
//! client can acquire.

use std::collections::{HashMap, VecDeque};

use stateright::Model;

use crate::{action::Action, client::Phase, config::Config, model::Redlock, state::State};

/// The result of [`check_liveness`].
#[derive(Debug)]
pub struct LivenessReport {
    /// The number of states.
    pub states: usize,
    /// The number of states that require a path to an acquire: a client has not started its round, and
    /// no counter is at its limit.
    pub required: usize,
    /// The number of those states that have no such path.
    pub stuck: usize,
}

/// All states, and the steps between them. States are numbered in the order of their discovery.
#[derive(Default)]
struct Graph {
    states: Vec<State>,
    /// The states that are one step before each state.
    predecessors: Vec<Vec<u32>>,
    /// The states in which a client can acquire in one step.
    acquiring: Vec<usize>,
}

/// Counts the states from which no path leads to an acquire, although there should be one.
pub fn check_liveness(config: Config) -> LivenessReport {
    let graph = Graph::from_model(&Redlock { config });
    let can_acquire = graph.states_that_can_acquire();
    let required: Vec<usize> = (0..graph.states.len())
        .filter(|state| requires_a_path(&config, &graph.states[*state]))
        .collect();
    LivenessReport {
        states: graph.states.len(),
        required: required.len(),
        stuck: required.iter().filter(|state| !can_acquire[**state]).count(),
    }
}

fn requires_a_path(config: &Config, state: &State) -> bool {
    let clients = &state.clients[..config.clients];
    clients.iter().any(|client| client.phase == Phase::Idle)
        && state.nodes.iter().all(|node| node.counter < config.highest_counter)
}

impl Graph {
    fn from_model(model: &Redlock) -> Self {
        let mut graph = Self::default();
        let mut numbers = HashMap::new();
        let mut queue = VecDeque::new();
        for state in model.init_states() {
            let number = graph.add(state);
            numbers.insert(state, number);
            queue.push_back(number);
        }
        let mut actions = Vec::new();
        while let Some(from) = queue.pop_front() {
            let state = graph.states[from];
            model.actions(&state, &mut actions);
            if actions.iter().any(|action| matches!(action, Action::Acquire(_))) {
                graph.acquiring.push(from);
            }
            for action in actions.drain(..) {
                let Some(next) = model.next_state(&state, action) else { continue };
                let to = *numbers.entry(next).or_insert_with(|| {
                    let number = graph.add(next);
                    queue.push_back(number);
                    number
                });
                let from = u32::try_from(from).expect("memory holds fewer than 2^32 states");
                graph.predecessors[to].push(from);
            }
        }
        graph
    }

    fn add(&mut self, state: State) -> usize {
        self.states.push(state);
        self.predecessors.push(Vec::new());
        self.states.len() - 1
    }

    /// For each state, whether a path leads from it to an acquire.
    fn states_that_can_acquire(&self) -> Vec<bool> {
        let mut can_acquire = vec![false; self.states.len()];
        let mut reached = self.acquiring.clone();
        while let Some(state) = reached.pop() {
            if !can_acquire[state] {
                can_acquire[state] = true;
                reached.extend(self.predecessors[state].iter().map(|before| *before as usize));
            }
        }
        can_acquire
    }
}

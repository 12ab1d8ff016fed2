//! Checks that there is always a way to acquire the lock again.
//!
//! stateright cannot express this: it checks what happens on every path, not whether a path exists.
//! So this module stores the graph of all states, and walks it backwards from the states in which a
//! client can acquire.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use stateright::Model;

/// How many states have a way to an acquire.
#[derive(Debug)]
pub struct LivenessReport {
    /// The number of states.
    pub states: usize,
    /// The number of states that require a path to an acquire.
    pub required: usize,
    /// The number of those states that have no such path.
    pub stuck: usize,
}

/// All states, and the steps between them. States are numbered in the order of their discovery.
struct Graph<S> {
    states: Vec<S>,
    /// The states that are one step before each state.
    predecessors: Vec<Vec<u32>>,
    /// The states in which a client can acquire in one step.
    acquiring: Vec<usize>,
}

/// Counts the states from which no path leads to a step that acquires, although there should be one.
pub(crate) fn check<M: Model>(
    model: &M,
    acquires: impl Fn(&M::Action) -> bool,
    requires_a_path: impl Fn(&M::State) -> bool,
) -> LivenessReport
where
    M::State: Clone + Eq + Hash,
{
    let graph = Graph::from_model(model, acquires);
    let can_acquire = graph.states_that_can_acquire();
    let is_required = |state: &usize| requires_a_path(&graph.states[*state]);
    let required: Vec<usize> = (0..graph.states.len()).filter(is_required).collect();
    LivenessReport {
        states: graph.states.len(),
        required: required.len(),
        stuck: required.iter().filter(|state| !can_acquire[**state]).count(),
    }
}

impl<S: Clone + Eq + Hash> Graph<S> {
    fn from_model<M: Model<State = S>>(model: &M, acquires: impl Fn(&M::Action) -> bool) -> Self {
        let mut graph = Self { states: vec![], predecessors: vec![], acquiring: vec![] };
        let (mut numbers, mut queue) = (HashMap::new(), VecDeque::new());
        let mut number = |graph: &mut Self, queue: &mut VecDeque<usize>, state: S| {
            *numbers.entry(state).or_insert_with_key(|state| {
                graph.states.push(state.clone());
                graph.predecessors.push(Vec::new());
                queue.push_back(graph.states.len() - 1);
                graph.states.len() - 1
            })
        };
        for state in model.init_states() {
            number(&mut graph, &mut queue, state);
        }
        let mut actions = Vec::new();
        while let Some(from) = queue.pop_front() {
            let state = graph.states[from].clone();
            model.actions(&state, &mut actions);
            if actions.iter().any(&acquires) {
                graph.acquiring.push(from);
            }
            for action in actions.drain(..) {
                let Some(next) = model.next_state(&state, action) else { continue };
                let to = number(&mut graph, &mut queue, next);
                let from = u32::try_from(from).expect("memory holds fewer than 2^32 states");
                graph.predecessors[to].push(from);
            }
        }
        graph
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

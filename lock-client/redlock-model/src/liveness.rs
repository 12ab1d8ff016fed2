//! Whether there is always a way to acquire again.
//!
//! stateright has no such property: it can tell what happens on each way, but not whether there is a
//! way. So the graph of all states is kept here, and gone through backwards from where somebody
//! acquires.

use std::collections::{HashMap, VecDeque};

use stateright::Model;

use crate::{
    action::Action, client::Phase, config::Config, id::Nodes, model::Redlock, state::State,
};

/// What was found.
#[derive(Debug)]
pub struct Liveness {
    /// How many states there are.
    pub states: usize,
    /// In how many of them it is demanded that there be a way to acquire: a client hasn't begun yet, a
    /// majority of the nodes is admitted, and no counter is at its limit.
    pub demanded: usize,
    /// In how many of those there is none.
    pub stuck: usize,
    /// The steps to one of them that is the fewest steps away.
    pub example: Option<Vec<Action>>,
}

/// All states, and the steps between them.
#[derive(Default)]
struct Graph {
    states: Vec<State>,
    /// By which step each was found first, and from where. The first states have none.
    found_by: Vec<Option<(usize, Action)>>,
    /// From which states one step leads to each.
    before: Vec<Vec<u32>>,
    /// Those in which somebody may acquire at once.
    acquiring: Vec<usize>,
}

/// Looks for states that no way leads out of to where somebody acquires.
pub fn check_liveness(config: Config) -> Liveness {
    let graph = Graph::of(&Redlock::new(config));
    let live = graph.leading_to_acquiring();
    let demanded = (0..graph.states.len()).filter(|at| demands(&config, &graph.states[*at]));
    let demanded: Vec<_> = demanded.collect();
    let stuck: Vec<_> = demanded.iter().copied().filter(|at| !live[*at]).collect();
    Liveness {
        states: graph.states.len(),
        demanded: demanded.len(),
        stuck: stuck.len(),
        // Those found first have the fewest steps.
        example: stuck.first().map(|at| graph.way_to(*at)),
    }
}

fn demands(config: &Config, state: &State) -> bool {
    let clients = &state.clients[..config.clients];
    clients.iter().any(|client| client.phase == Phase::Idle)
        && Nodes::those(|node| state.node(node).admitted()).is_majority()
        && state.nodes.iter().all(|node| node.counter < config.highest_counter)
}

impl Graph {
    fn of(model: &Redlock) -> Self {
        let mut graph = Self::default();
        let mut numbers = HashMap::new();
        let mut queue = VecDeque::new();
        for state in model.init_states() {
            let number = graph.add(state, None);
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
                    let number = graph.add(next, Some((from, action)));
                    queue.push_back(number);
                    number
                });
                graph.before[to].push(u32::try_from(from).expect("as many don't fit in memory"));
            }
        }
        graph
    }

    fn add(&mut self, state: State, found_by: Option<(usize, Action)>) -> usize {
        self.states.push(state);
        self.found_by.push(found_by);
        self.before.push(Vec::new());
        self.states.len() - 1
    }

    /// For each state, whether a way leads from it to where somebody acquires.
    fn leading_to_acquiring(&self) -> Vec<bool> {
        let mut live = vec![false; self.states.len()];
        let mut reached = self.acquiring.clone();
        while let Some(at) = reached.pop() {
            if !live[at] {
                live[at] = true;
                reached.extend(self.before[at].iter().map(|before| *before as usize));
            }
        }
        live
    }

    fn way_to(&self, mut at: usize) -> Vec<Action> {
        let mut way = Vec::new();
        while let Some((from, action)) = self.found_by[at] {
            way.push(action);
            at = from;
        }
        way.reverse();
        way
    }
}

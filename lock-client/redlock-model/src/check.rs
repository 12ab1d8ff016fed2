//! Explores every state of a model, and reports what it has found.

use std::{
    fmt::{self, Debug},
    hash::Hash,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::liveness::LivenessReport;

/// Limits of a model, within which all of it can be explored.
pub trait Explore: Copy {
    /// A situation that the safety properties must survive.
    type Situation: Copy + PartialEq + Debug;
    /// A rule that can be broken.
    type Fault: Copy + Debug;

    /// The same model with a broken rule.
    #[must_use]
    fn with_fault(self, fault: Self::Fault) -> Self;

    /// Explores every state, or stops at one that violates a safety property.
    ///
    /// With one thread, no other state that violates one is reached in fewer steps.
    fn explore(self, threads: usize) -> Report<Self::Situation>;
}

/// Limits of a model in which there should always be a way to acquire.
pub trait CheckLiveness {
    /// Counts the states from which no path leads to an acquire, although there should be one.
    fn check_liveness(self) -> LivenessReport;
}

/// What was found in a model.
#[derive(Debug)]
pub struct Report<S> {
    /// The number of states, or of those explored before a property was violated.
    pub states: usize,
    /// The length of the longest path of steps to a state.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// The safety properties that one state violates.
    pub violated: Vec<&'static str>,
    /// The steps to that state. A model that merges symmetric states renumbers nodes and clients after each
    /// step, so the numbers in one step are not those in the next.
    pub steps: Vec<String>,
    /// The situations that occur.
    pub occurred: Vec<S>,
}

/// A model, what must hold in each state, and which situations have occurred.
///
/// stateright would store the steps to every state in which one occurs. So they are no properties to it.
pub(crate) struct Explored<M: Model, S: 'static> {
    pub(crate) model: M,
    /// The safety properties that a state violates.
    pub(crate) violated: fn(&M, &M::State) -> Vec<&'static str>,
    pub(crate) situations: &'static [S],
    pub(crate) occurs: fn(&M, S, &M::State) -> bool,
}

struct Exploration<M: Model, S: 'static>(Explored<M, S>, Vec<AtomicBool>);

pub(crate) fn explore<M, S>(explored: Explored<M, S>, threads: usize) -> Report<S>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
    S: Copy + Send + Sync,
{
    let started = Instant::now();
    let occurred = explored.situations.iter().map(|_| AtomicBool::new(false)).collect();
    let checker = Exploration(explored, occurred)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(threads)
        .spawn_bfs()
        .join();
    let took = started.elapsed();
    let Exploration(Explored { model, violated, situations, .. }, occurred) = checker.model();
    let found = checker.discoveries().into_values().next();
    let occurred = situations.iter().zip(occurred);
    Report {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took,
        violated: found.as_ref().map_or(vec![], |path| violated(model, path.last_state())),
        steps: found.map_or(vec![], |path| {
            path.into_actions().iter().map(|step| format!("{step:?}")).collect()
        }),
        occurred: occurred
            .filter(|(_, occurred)| occurred.load(Ordering::Relaxed))
            .map(|(situation, _)| *situation)
            .collect(),
    }
}

impl<M: Model, S: Copy> Exploration<M, S> {
    /// Notes the situations, and returns whether no safety property is violated.
    fn is_safe(&self, state: &M::State) -> bool {
        let Self(Explored { model, violated, situations, occurs }, occurred) = self;
        for (situation, occurred) in situations.iter().zip(occurred) {
            if !occurred.load(Ordering::Relaxed) && occurs(model, *situation, state) {
                occurred.store(true, Ordering::Relaxed);
            }
        }
        violated(model, state).is_empty()
    }
}

impl<M: Model, S: Copy> Model for Exploration<M, S>
where
    M::State: Clone + Debug,
    M::Action: Debug,
{
    type State = M::State;
    type Action = M::Action;

    fn init_states(&self) -> Vec<M::State> {
        self.0.model.init_states()
    }

    fn actions(&self, state: &M::State, actions: &mut Vec<M::Action>) {
        self.0.model.actions(state, actions);
    }

    fn next_state(&self, state: &M::State, action: M::Action) -> Option<M::State> {
        self.0.model.next_state(state, action)
    }

    // It is the only property, so that stateright stops at the first state that violates it.
    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("safe", Self::is_safe)]
    }
}

impl<S: Debug> fmt::Display for Report<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, depth, took, violated, steps, occurred } = self;
        writeln!(f, "{states} states, at most {depth} steps deep, in {took:.1?}: {occurred:?}")?;
        for name in violated {
            writeln!(f, "VIOLATED after {} steps: {name}", steps.len())?;
        }
        steps.iter().try_for_each(|step| writeln!(f, "  {step}"))
    }
}

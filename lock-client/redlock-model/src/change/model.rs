//! The model that stateright explores, and its check.

use std::{
    collections::BTreeMap,
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::{
    admission::NodeStep,
    client::Client,
    client_step::ClientStep,
    config::Config,
    properties::{EPOCHS_ARE_DECIDED_ONCE, LEASES_EXCLUDE, SAFETY, Situation},
    proposer::{Proposer, ProposerStep},
    state::State,
};
use crate::{
    id::{Holder, MOST_NODES, NodeId},
    properties::{NO_LEASE_OUTLIVES, TOKENS_ARE_UNIQUE, TOKENS_GROW},
};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A step of a proposer, by its number.
    Proposer(usize, ProposerStep),
    /// A step of a client.
    Client(Holder, ClientStep),
    /// A step of a node.
    Node(NodeId, NodeStep),
}

/// Changes of members, within the limits of a [`Config`].
#[derive(Debug)]
struct Changes {
    config: Config,
    /// Whether each situation has occurred: only the first state of each is of use.
    occurred: [AtomicBool; Situation::ALL.len()],
}

impl Changes {
    fn occurs_first<const SITUATION: usize>(&self, state: &State) -> bool {
        let occurred = &self.occurred[SITUATION];
        !occurred.load(Ordering::Relaxed)
            && Situation::ALL[SITUATION].occurs_in(&self.config, state)
            && !occurred.swap(true, Ordering::Relaxed)
    }

    fn situation<const SITUATION: usize>() -> Property<Self> {
        Property::sometimes(Situation::ALL[SITUATION].name(), Self::occurs_first::<SITUATION>)
    }
}

impl Model for Changes {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.config)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if !state.is_safe() {
            return;
        }
        let config = &self.config;
        for index in 0..config.proposals.len() {
            let of_proposer = Proposer::steps(config, state, index);
            steps.extend(of_proposer.into_iter().map(|step| Step::Proposer(index, step)));
        }
        for holder in (0..config.clients as u8).map(Holder) {
            let of_client = Client::steps(config, state, holder);
            steps.extend(of_client.into_iter().map(|step| Step::Client(holder, step)));
        }
        for id in NodeId::first(MOST_NODES) {
            let of_node = NodeStep::all(config, state, id);
            steps.extend(of_node.into_iter().map(|step| Step::Node(id, step)));
        }
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let config = &self.config;
        let mut state = *before;
        match step {
            Step::Proposer(index, step) => Proposer::apply(config, &mut state, index, step),
            Step::Client(holder, step) => Client::apply(config, &mut state, holder, step)?,
            Step::Node(id, step) => step.apply(config, &mut state, id),
        }
        let is_within_limits =
            state.members.iter().all(|member| member.node.counter <= config.highest_counter);
        (is_within_limits && state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TOKENS_ARE_UNIQUE, |_, state: &State| !state.history.token_repeated),
            Property::always(TOKENS_GROW, |_, state: &State| !state.history.token_fell),
            Property::always(NO_LEASE_OUTLIVES, |_, state: &State| !state.history.lease_outlived),
            Property::always(EPOCHS_ARE_DECIDED_ONCE, |_, state: &State| !state.decided_twice),
            Property::always(LEASES_EXCLUDE, |_, state: &State| !state.leases_overlapped),
            Self::situation::<0>(),
            Self::situation::<1>(),
            Self::situation::<2>(),
            Self::situation::<3>(),
            Self::situation::<4>(),
            Self::situation::<5>(),
            Self::situation::<6>(),
            Self::situation::<7>(),
            Self::situation::<8>(),
        ]
    }
}

/// The result of [`check`].
#[derive(Debug)]
pub struct Report {
    /// The number of states, or of those explored before a property was violated.
    pub states: usize,
    /// How long the check took.
    pub took: Duration,
    /// Steps by property or situation: to a state that violates the property, or to one in which
    /// the situation occurs.
    pub found: BTreeMap<&'static str, Vec<Step>>,
}

/// Explores every state of a model, or stops at a violated property.
///
/// With one thread, the reported steps are the fewest that lead there.
pub fn check(config: Config, threads: usize) -> Report {
    let started = Instant::now();
    let checker = Changes { config, occurred: Default::default() }
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(threads)
        .spawn_bfs()
        .join();
    let found = checker.discoveries().into_iter();
    Report {
        states: checker.unique_state_count(),
        took: started.elapsed(),
        found: found.map(|(name, path)| (name, path.into_actions())).collect(),
    }
}

impl Report {
    /// The safety properties that a state violates.
    pub fn violated(&self) -> Vec<&'static str> {
        SAFETY.into_iter().filter(|name| self.found.contains_key(name)).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} states in {:.1?}", self.states, self.took)?;
        for (name, steps) in &self.found {
            let verb = if SAFETY.contains(name) { "VIOLATED" } else { "reached" };
            writeln!(f, "{verb} after {} steps: {name}", steps.len())?;
        }
        for name in self.violated() {
            writeln!(f, "\nsteps that violate \"{name}\":")?;
            self.found[name].iter().try_for_each(|step| writeln!(f, "  {step:?}"))?;
        }
        Ok(())
    }
}

//! The model that stateright explores, and its check.

use std::{
    collections::BTreeMap,
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::{
    client::{Client, ClientStep},
    config::{Config, Fault},
    operator::{Operator, OperatorStep},
    state::State,
};
use crate::{
    id::Holder,
    properties::{NO_LEASE_OUTLIVES, TOKENS_ARE_UNIQUE, TOKENS_GROW},
    redlock::machines::takeover::Command,
};

/// At most one roster has a majority of voters.
pub const ONE_ELECTORATE: &str = "one roster has a majority";
/// If no lock expires early, no two leases overlap.
pub const LEASES_EXCLUDE: &str = "leases exclude each other";
/// The properties that must always hold.
pub const SAFETY: [&str; 5] =
    [TOKENS_ARE_UNIQUE, TOKENS_GROW, NO_LEASE_OUTLIVES, ONE_ELECTORATE, LEASES_EXCLUDE];

/// A situation that the safety properties must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// A new process votes.
    NewProcessVotes,
    /// Two new processes vote.
    TwoNewProcessesVote,
    /// Two rosters of a term have holders.
    TwoRosters,
    /// A client holds the lock on a new process.
    HeldByNewProcess,
    /// A lease is renewed under a later roster.
    RenewedLater,
    /// A process that has lost its seat still holds the roster that names it.
    OldProcessVotes,
}

impl Situation {
    const ALL: [Self; 6] = [
        Self::NewProcessVotes,
        Self::TwoNewProcessesVote,
        Self::TwoRosters,
        Self::HeldByNewProcess,
        Self::RenewedLater,
        Self::OldProcessVotes,
    ];

    /// The situation in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewProcessVotes => "a new process votes",
            Self::TwoNewProcessesVote => "two new processes vote",
            Self::TwoRosters => "two rosters of a term have holders",
            Self::HeldByNewProcess => "a client holds the lock on a new process",
            Self::RenewedLater => "a lease is renewed under a later roster",
            Self::OldProcessVotes => "a process that was replaced still votes",
        }
    }

    fn occurs_in(self, config: &Config, state: &State) -> bool {
        let new = state.processes.iter().filter(|process| process.id >= config.seats);
        let voting = new.filter(|process| process.votes()).count();
        match self {
            Self::NewProcessVotes => voting > 0,
            Self::TwoNewProcessesVote => voting > 1,
            Self::TwoRosters => {
                let rosters = state.rosters();
                rosters.iter().zip(rosters.iter().skip(1)).any(|(one, next)| one.term == next.term)
            }
            Self::HeldByNewProcess => {
                state.clients.iter().any(|client| client.holds_new(config.seats))
            }
            Self::RenewedLater => state.clients.iter().any(Client::is_renewed_later),
            Self::OldProcessVotes => {
                let mut old = state.processes.iter().take(config.seats.into());
                voting > 0 && old.any(|it| it.roster.is_some_and(|own| own.term == 1))
            }
        }
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A step of an operator, by its number.
    Operator(usize, OperatorStep),
    /// A process takes a request of an operator that has stopped, or does not receive the answer.
    Late(u8, Box<Command>),
    /// A step of a client.
    Client(Holder, ClientStep),
    /// A new process starts at an address, empty or with a copy of another's data.
    Start(u8, Option<u8>),
    /// The lock on a process expires.
    Expire(u8),
}

/// Takeovers of seats, within the limits of a [`Config`].
#[derive(Debug)]
struct Takeovers {
    config: Config,
    /// Whether each situation has occurred: only the first state of each is of use.
    occurred: [AtomicBool; Situation::ALL.len()],
}

impl Takeovers {
    fn occurs_first<const SITUATION: usize>(&self, state: &State) -> bool {
        let occurred = &self.occurred[SITUATION];
        !occurred.load(Ordering::Relaxed)
            && Situation::ALL[SITUATION].occurs_in(&self.config, state)
            && !occurred.swap(true, Ordering::Relaxed)
    }

    fn situation<const SITUATION: usize>() -> Property<Self> {
        Property::sometimes(Situation::ALL[SITUATION].name(), Self::occurs_first::<SITUATION>)
    }

    fn add_process_steps(&self, state: &State, steps: &mut Vec<Step>) {
        let config = &self.config;
        for process in &state.processes {
            if let Some(lock) = process.node.lock
                && (config.early_expiry
                    || state.clients[lock.holder.index()].may_expire(process.id))
            {
                steps.push(Step::Expire(process.id));
            }
        }
        if state.processes.len() < usize::from(config.seats + config.starts) {
            // The seats are alike: the first new process starts at the first, the next there or at the
            // second, and so on.
            let started = state.processes.len() as u8 - config.seats;
            for address in 0..=started.min(config.seats - 1) {
                steps.push(Step::Start(address, None));
                let others = state.processes.iter().filter(|it| it.address == address);
                let clones = others.filter(|_| config.clones);
                steps.extend(clones.map(|other| Step::Start(address, Some(other.id))));
            }
        }
        let mut requests = state.sent.clone();
        add_faulty_requests(config.fault, state, &mut requests);
        for command in requests {
            let late = state.receivers(config, &command);
            steps.extend(late.map(|id| Step::Late(id, Box::new(command.clone()))));
        }
    }
}

/// Adds the requests that broken rules allow an operator.
fn add_faulty_requests(fault: Option<Fault>, state: &State, requests: &mut Vec<Command>) {
    let held = || state.processes.iter().filter_map(|process| process.own_roster().copied());
    for process in &state.processes {
        let Some(from) = process.own_roster().copied() else { continue };
        let allowed = held().filter(|to| match fault {
            Some(Fault::FinishesAnyRoster) => {
                to.term == from.term && *to != from && process.is_admitted
            }
            Some(Fault::LaggardAlwaysJumps) => to.term > from.term,
            _ => false,
        });
        requests.extend(allowed.map(|to| Command::Close { process: process.id, from, to }));
    }
}

impl Model for Takeovers {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.config)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.history.has_violation() || state.leases_overlapped || state.has_two_electorates() {
            return;
        }
        let config = &self.config;
        for (index, operator) in state.operators.iter().enumerate() {
            let mut own = Vec::new();
            operator.add_steps(index, config, state, &mut own);
            steps.extend(own.into_iter().map(|step| Step::Operator(index, step)));
        }
        for holder in (0..config.clients).map(Holder) {
            let mut own = Vec::new();
            Client::add_steps(config, state, holder, &mut own);
            steps.extend(own.into_iter().map(|step| Step::Client(holder, step)));
        }
        self.add_process_steps(state, steps);
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let config = &self.config;
        let mut state = before.clone();
        match step {
            Step::Operator(index, step) => Operator::apply(config, &mut state, index, step),
            Step::Late(process, command) => state.process_mut(process).run(&command, config.fault),
            Step::Client(holder, step) => Client::apply(config, &mut state, holder, step)?,
            Step::Start(address, data_of) => state.start(address, data_of),
            Step::Expire(process) => state.process_mut(process).node.lock = None,
        }
        let mut processes = state.processes.iter();
        if processes.any(|process| process.node.counter > config.highest_counter) {
            return None;
        }
        if state.highest_prepared_term() > config.highest_term {
            return None;
        }
        state.forget_requests(config);
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TOKENS_ARE_UNIQUE, |_, state: &State| !state.history.token_repeated),
            Property::always(TOKENS_GROW, |_, state: &State| !state.history.token_fell),
            Property::always(NO_LEASE_OUTLIVES, |_, state: &State| !state.history.lease_outlived),
            Property::always(ONE_ELECTORATE, |_, state: &State| !state.has_two_electorates()),
            Property::always(LEASES_EXCLUDE, |_, state: &State| !state.leases_overlapped),
            Self::situation::<0>(),
            Self::situation::<1>(),
            Self::situation::<2>(),
            Self::situation::<3>(),
            Self::situation::<4>(),
            Self::situation::<5>(),
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
    pub found: BTreeMap<&'static str, Vec<String>>,
}

/// Explores every state of a model, or stops at a violated property.
///
/// With one thread, the reported steps are the fewest that lead there.
pub fn check(config: Config, threads: usize) -> Report {
    let started = Instant::now();
    let checker = Takeovers { config, occurred: Default::default() }
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(threads)
        .spawn_bfs()
        .join();
    let found = checker.discoveries().into_iter();
    Report {
        states: checker.unique_state_count(),
        took: started.elapsed(),
        found: found.map(|(name, path)| (name, words(path.into_actions()))).collect(),
    }
}

fn words(steps: Vec<Step>) -> Vec<String> {
    steps.iter().map(|step| format!("{step:?}")).collect()
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
            self.found[name].iter().try_for_each(|step| writeln!(f, "  {step}"))?;
        }
        Ok(())
    }
}

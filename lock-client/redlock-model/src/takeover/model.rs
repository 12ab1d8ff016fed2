//! The model that stateright explores, and its check.

use stateright::Model;

use super::{
    client::{Client, ClientStep},
    config::{Config, Fault},
    operator::{Operator, OperatorStep},
    state::State,
};
use crate::{
    check::{CheckLiveness, Explore, Explored, Report, explore},
    id::Holder,
    liveness::{self, LivenessReport},
    redlock::machines::takeover::Command,
};

/// No two disjoint sets of processes are majorities to clients: at most one roster has M voters.
pub const ONE_ELECTORATE: &str = "one roster has a majority";
/// If no lock expires early, no two leases overlap.
pub const LEASES_EXCLUDE: &str = "leases exclude each other";

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
}

impl Takeovers {
    /// Takes the one step whose description begins with this text.
    fn follow(&self, state: &State, text: &str) -> State {
        let mut steps = Vec::new();
        self.actions(state, &mut steps);
        steps.retain(|step| format!("{step:?}").starts_with(text));
        assert_eq!(steps.len(), 1, "{text}: {steps:#?}");
        // With a broken rule, a step may change nothing.
        let next = steps.pop().and_then(|step| self.next_state(state, step));
        next.unwrap_or_else(|| state.clone())
    }

    fn violated(&self, state: &State) -> Vec<&'static str> {
        let mut violated = state.history.violated();
        violated.extend(state.has_two_electorates(&self.config).then_some(ONE_ELECTORATE));
        violated.extend(state.leases_overlapped.then_some(LEASES_EXCLUDE));
        violated
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
            let addresses = match started {
                0 if config.relocates => config.seats..=config.seats,
                _ => 0..=started.min(config.seats - 1),
            };
            for address in addresses {
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
            // One that changes nothing is no step.
            let late = late.filter(|id| {
                let mut process = *state.process(*id);
                process.run(&command, config.fault);
                process != *state.process(*id)
            });
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
            Some(Fault::LaggardJumps) => to.term > from.term && state.is_decided(to),
            _ => false,
        });
        requests.extend(allowed.map(|to| Command::Close { process: process.id, from, to }));
    }
}

impl Model for Takeovers {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let follow = |state, text: &&str| self.follow(&state, text);
        vec![self.config.script.iter().fold(State::new(&self.config), follow)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if !self.violated(state).is_empty() {
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
}

impl Explore for Config {
    type Situation = Situation;
    type Fault = Fault;

    fn with_fault(self, fault: Self::Fault) -> Self {
        Self { fault: Some(fault), ..self }
    }

    fn explore(self, threads: usize) -> Report<Situation> {
        let explored = Explored {
            model: Takeovers { config: self },
            violated: Takeovers::violated,
            situations: &Situation::ALL,
            occurs: |model, situation, state| situation.occurs_in(&model.config, state),
        };
        explore(explored, threads)
    }
}

impl CheckLiveness for Config {
    /// A path is required if all processes have started, and the clients have not. The acquire must have the vote
    /// of a new process.
    fn check_liveness(self) -> LivenessReport {
        liveness::check(
            &Takeovers { config: self },
            |step| match step {
                Step::Client(_, ClientStep::Acquire(processes, _)) => *processes >= 1 << self.seats,
                _ => false,
            },
            |state| {
                state.processes.len() == usize::from(self.seats + self.starts)
                    && state.clients.iter().all(Client::is_idle)
            },
        )
    }
}

//! One state of a model of takeovers.

use super::{
    client::{self, Client},
    config::{Config, Fault},
    operator::Operator,
    process::Process,
};
use crate::{
    history::History,
    id::MOST_CLIENTS,
    redlock::{
        machines::takeover::{Command, Takeover},
        roster::Roster,
    },
};

/// The processes, the operators, the clients, and the requests of operators in the network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) processes: Vec<Process>,
    pub(crate) operators: Vec<Operator>,
    pub(crate) clients: [Client; MOST_CLIENTS],
    /// The requests that operators have sent. Each may be delivered at any time, any number of times.
    pub(crate) sent: Vec<Command>,
    pub(crate) history: History,
    /// Whether two clients had leases at the same time.
    pub(crate) leases_overlapped: bool,
}

/// Whether a set of processes contains one.
pub(crate) fn bit(set: u8, process: u8) -> bool {
    set & 1 << process != 0
}

impl State {
    /// A cluster whose members vote.
    pub(crate) fn new(config: &Config) -> Self {
        let members = || 0..config.seats;
        let roster = Roster::first((), (), members().map(|member| (member, member)));
        let process = |id| Process {
            id,
            address: id,
            roster: Some(roster),
            is_admitted: true,
            ..Process::default()
        };
        let operator = |index| match index {
            0 if config.relocates => Operator::new(Takeover::relocating((), 0, config.seats)),
            _ => Operator::new(Takeover::new(())),
        };
        Self {
            processes: members().map(process).collect(),
            operators: (0..config.operators).map(operator).collect(),
            clients: Default::default(),
            sent: Vec::new(),
            history: History::default(),
            leases_overlapped: false,
        }
    }

    pub(crate) fn process(&self, id: u8) -> &Process {
        &self.processes[usize::from(id)]
    }

    pub(crate) fn process_mut(&mut self, id: u8) -> &mut Process {
        &mut self.processes[usize::from(id)]
    }

    /// A new process starts at an address, empty or with a copy of another's data.
    pub(crate) fn start(&mut self, address: u8, data_of: Option<u8>) {
        let id = self.processes.len() as u8;
        let data = data_of.map(|other| *self.process(other)).unwrap_or_default();
        self.processes.push(Process { id, address, ..data });
    }

    /// The rosters under which some process votes.
    pub(crate) fn rosters(&self) -> Vec<Roster> {
        let voting = self.processes.iter().filter(|process| process.votes());
        let mut rosters: Vec<_> = voting.filter_map(|process| process.roster).collect();
        rosters.sort_unstable();
        rosters.dedup();
        rosters
    }

    /// Whether M of the members that stay vote for a roster.
    pub(crate) fn is_decided(&self, roster: &Roster) -> bool {
        let votes = |id| {
            let process = self.process(id);
            process.votes() && process.roster.as_ref() == Some(roster)
        };
        roster.staying().filter(|seat| votes(seat.process)).count() >= roster.majority()
    }

    /// Whether two disjoint sets of processes are majorities to clients.
    pub(crate) fn has_two_electorates(&self, config: &Config) -> bool {
        let mut rosters = self.rosters();
        // With a broken rule, clients don't distinguish them.
        rosters.dedup_by(|next, first| client::is_same(config, next, first));
        let majorities =
            rosters.iter().map(|it| client::voters(config, self, it).count() / it.majority());
        majorities.sum::<usize>() > 1
    }

    /// From now on, an operator's wait for a process lasts until everything has ended that is under way.
    pub(crate) fn start_wait(&mut self, operator: usize, process: u8) {
        self.clients.iter_mut().for_each(|client| client.start_wait(wait_bit(operator, process)));
    }

    pub(crate) fn wait_is_over(&self, operator: usize, process: u8) -> bool {
        let wait = wait_bit(operator, process);
        self.clients.iter().all(|client| !client.is_awaited(wait))
    }

    pub(crate) fn send(&mut self, command: &Command) {
        if let Err(place) = self.sent.binary_search(command) {
            self.sent.insert(place, command.clone());
        }
    }

    /// The highest term for which an operator has prepared a process.
    pub(crate) fn highest_prepared_term(&self) -> u8 {
        let terms = self.sent.iter().map(|command| match command {
            Command::Prepare { roster, .. } => roster.term,
            _ => 0,
        });
        terms.max().unwrap_or_default()
    }

    /// The processes that may take a request.
    pub(crate) fn receivers(&self, config: &Config, command: &Command) -> impl Iterator<Item = u8> {
        let named = addressee(command);
        let by_address = config.fault == Some(Fault::CloseComparesAddress)
            && matches!(command, Command::Close { .. });
        let address = self.process(named).address;
        let processes = self
            .processes
            .iter()
            .filter(move |process| process.id == named || by_address && process.address == address);
        processes.map(|process| process.id)
    }

    /// Forgets the requests that can't change anything any more: a process's term never falls.
    pub(crate) fn forget_requests(&mut self, config: &Config) {
        if config.fault.is_some_and(Fault::old_requests_matter) {
            return;
        }
        let processes = &self.processes;
        self.sent.retain(|command| {
            let process = &processes[usize::from(addressee(command))];
            let Some(own) = process.own_roster() else { return true };
            match command {
                Command::Prepare { roster, .. } => process.standing().may_be_prepared(roster),
                Command::Close { from, to, .. } => own.term <= from.term && own != to,
                Command::Admit { roster, .. } => own.term <= roster.term && !process.is_admitted,
                _ => false,
            }
        });
    }
}

/// The process that a request names.
fn addressee(command: &Command) -> u8 {
    match command {
        Command::Prepare { process, .. }
        | Command::Close { process, .. }
        | Command::Admit { process, .. } => *process,
        _ => unreachable!("it is no request to one process"),
    }
}

fn wait_bit(operator: usize, process: u8) -> u32 {
    1 << (operator * 8 + usize::from(process))
}

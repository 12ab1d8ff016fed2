//! An operator or a watcher: it carries the commands of the machine, which decides everything.

use super::{
    config::{Config, Fault},
    process::Process,
    state::{State, bit},
};
use crate::{
    id::Token,
    redlock::{
        machines::takeover::{Answer, Command, Takeover},
        roster::Roster,
    },
};

/// An operator. It may stop at any moment: then it takes no further step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Operator {
    machine: Takeover,
    /// The commands without a result.
    pending: Vec<Command>,
    /// The processes from which the copies under way have been made.
    copied: Vec<u8>,
    /// The processes whose wait is not over, and since when they have their seats.
    waiting: Vec<(u8, u8)>,
    /// The processes behind which a copy has found another one: it does not reach them again.
    hidden: u8,
    /// What broken rules need to remember.
    lies: Lies,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Lies {
    /// Processes, and the rosters that they are taken to hold.
    taken: Vec<(u8, Roster)>,
    /// The counters when the processes were first seen.
    counters: Vec<(u8, Token)>,
    /// The processes whose wait has begun early.
    waits: u8,
}

/// A step of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OperatorStep {
    /// These processes answer a look.
    Look(u8),
    /// A process runs the script of a command, and the operator receives the answer.
    Ask(u8, Command),
    /// The counters of a process, or of a later one at its address, are copied.
    Copy {
        /// The process that the machine named.
        source: u8,
        /// The process that was read.
        from: u8,
    },
    /// No more answers come.
    TimeOut,
    /// A wait is over.
    EndWait(u8),
}

impl Operator {
    pub(crate) fn new(machine: Takeover) -> Self {
        let (copied, waiting) = (Vec::new(), Vec::new());
        let mut operator =
            Self { machine, pending: vec![], copied, waiting, hidden: 0, lies: Lies::default() };
        operator.pending = operator.machine.next();
        operator
    }

    pub(crate) fn add_steps(
        &self,
        index: usize,
        config: &Config,
        state: &State,
        steps: &mut Vec<OperatorStep>,
    ) {
        for command in &self.pending {
            match command {
                Command::Look => {
                    let reached = state.processes.iter().filter(|it| !bit(self.hidden, it.id));
                    let reached = reached.fold(0, |mask, it| mask | 1 << it.id);
                    let masks = 1..=reached;
                    steps.extend(masks.filter(|mask| mask & !reached == 0).map(OperatorStep::Look));
                }
                Command::Copy { from, .. } => {
                    for source in from.iter().filter(|source| !self.copied.contains(source)) {
                        let address = state.process(*source).address;
                        let later = state.processes.iter().filter(|it| it.id >= *source);
                        steps.extend(
                            later
                                .filter(|it| it.address == address)
                                .map(|it| OperatorStep::Copy { source: *source, from: it.id }),
                        );
                    }
                }
                _ => steps.extend(
                    state
                        .receivers(config, command)
                        .map(|id| OperatorStep::Ask(id, command.clone())),
                ),
            }
        }
        if self.pending != [Command::Look] {
            steps.push(OperatorStep::TimeOut);
        }
        let ended = self.waiting.iter().filter(|(process, _)| state.wait_is_over(index, *process));
        steps.extend(ended.map(|(process, _)| OperatorStep::EndWait(*process)));
    }

    pub(crate) fn apply(config: &Config, state: &mut State, index: usize, step: OperatorStep) {
        let mut operator = state.operators[index].clone();
        match step {
            OperatorStep::Look(mask) => {
                for process in state.processes.iter().filter(|it| bit(mask, it.id)) {
                    let answer = operator.answer(config, process);
                    if config.fault == Some(Fault::NewProcessCounts) {
                        operator.count_new_process(state, &answer);
                    }
                    operator.machine.observe(answer);
                }
                operator.pending.retain(|command| *command != Command::Look);
            }
            OperatorStep::Ask(id, command) => {
                state.process_mut(id).run(&command, config.fault);
                let answer = operator.answer(config, state.process(id));
                operator.machine.observe_result(&command, Some(answer));
                operator.pending.retain(|other| *other != command);
            }
            OperatorStep::Copy { source, from } => operator.copy(config, state, source, from),
            OperatorStep::TimeOut => {
                for command in operator.pending.split_off(0) {
                    match command {
                        Command::Copy { to, roster, .. } => {
                            operator.machine.observe_copy(
                                &to,
                                operator.copied.split_off(0),
                                &roster,
                            );
                        }
                        command => operator.machine.observe_result(&command, None),
                    }
                }
            }
            OperatorStep::EndWait(process) => {
                let is_over = |wait: &&(u8, u8)| wait.0 == process;
                if let Some((_, since)) = operator.waiting.iter().find(is_over) {
                    operator.machine.end_wait(&process, *since);
                }
                operator.waiting.retain(|wait| wait.0 != process);
            }
        }
        while operator.pending.is_empty() {
            for command in operator.machine.next() {
                operator.carry(config, state, index, command);
            }
        }
        state.operators[index] = operator;
    }

    /// Sends a command of the machine.
    fn carry(&mut self, config: &Config, state: &mut State, index: usize, command: Command) {
        let fault = config.fault;
        match &command {
            Command::Rest => return,
            Command::Wait { process, since, .. } => {
                let is_early =
                    matches!(fault, Some(Fault::WaitFromFirstSight | Fault::WaitFromFirstClose));
                if fault != Some(Fault::NoWait) && !(is_early && bit(self.lies.waits, *process)) {
                    state.start_wait(index, *process);
                }
                self.waiting.retain(|wait| wait.0 != *process);
                self.waiting.push((*process, *since));
                self.waiting.sort_unstable();
                return;
            }
            Command::Prepare { process, .. } if fault == Some(Fault::WaitFromFirstSight) => {
                self.wait_early(state, index, *process);
            }
            Command::Close { to, .. } if fault == Some(Fault::WaitFromFirstClose) => {
                for seat in to.seats.iter().filter(|seat| seat.since == to.term) {
                    self.wait_early(state, index, seat.process);
                }
            }
            Command::Close { process, to, .. }
                if fault == Some(Fault::NoClose)
                    || fault == Some(Fault::OneCloseTooFew) && self.lies.taken.is_empty() =>
            {
                if fault == Some(Fault::NoClose) {
                    state.send(&command);
                }
                return self.take_for_done(config, state, &command, *process, *to);
            }
            Command::Close { from, to, .. }
                if fault == Some(Fault::NoRosterGivesWay)
                    && from.term == to.term
                    && !state.is_decided(to) =>
            {
                return;
            }
            Command::Prepare { process, roster }
                if fault == Some(Fault::LaggardJumps) && state.process(*process).votes() =>
            {
                return self.take_for_done(config, state, &command, *process, *roster);
            }
            Command::Copy { from, .. } => {
                self.copied.clear();
                if fault == Some(Fault::CopyFromFewer) {
                    self.copied.extend(from.first());
                }
            }
            _ => {}
        }
        if !matches!(command, Command::Look | Command::Copy { .. }) {
            state.send(&command);
        }
        self.pending.push(command);
    }

    /// A broken rule: a process is taken for one that holds a roster.
    fn take_for_done(
        &mut self,
        config: &Config,
        state: &State,
        command: &Command,
        process: u8,
        roster: Roster,
    ) {
        self.lies.taken.retain(|taken| *taken != (process, roster));
        self.lies.taken.push((process, roster));
        let answer = self.answer(config, state.process(process));
        self.machine.observe_result(command, Some(answer));
    }

    /// A broken rule: if the new process holds its roster, a member that stays counts as closed.
    fn count_new_process(&mut self, state: &State, answer: &Answer) {
        let Some(roster) = answer.roster.filter(|_| !answer.is_admitted) else { return };
        let is_new = roster.seat_of(&answer.process).is_some_and(|it| it.since == roster.term);
        let is_open = |id: &u8| state.process(*id).own_roster() != Some(&roster);
        let mut staying = roster.staying().map(|seat| seat.process);
        if is_new && let Some(member) = staying.find(is_open) {
            let roster = Some(roster);
            let closed = Answer { roster, is_admitted: true, ..state.process(member).answer() };
            self.machine.observe(closed);
        }
    }

    fn wait_early(&mut self, state: &mut State, index: usize, process: u8) {
        if !bit(self.lies.waits, process) {
            self.lies.waits |= 1 << process;
            state.start_wait(index, process);
        }
    }

    fn copy(&mut self, config: &Config, state: &mut State, source: u8, from: u8) {
        let command = self.pending.iter().find(|it| matches!(it, Command::Copy { .. }));
        let Some(Command::Copy { to, from: sources, roster }) = command.cloned() else { return };
        let mut counter = state.process(from).node.counter;
        if config.fault == Some(Fault::CopyReadsEarly) {
            let mut seen = self.lies.counters.iter();
            counter = seen.find(|seen| seen.0 == source).map_or(counter, |seen| seen.1);
        }
        let target = &mut state.process_mut(to).node.counter;
        *target =
            if config.fault == Some(Fault::CopySets) { counter } else { counter.max(*target) };
        let is_behind = state.process(from).address == state.process(source).address;
        if from != source && is_behind && config.fault != Some(Fault::CopyLooksBeforeOnly) {
            self.hidden |= 1 << source;
        }
        self.copied.push(source);
        self.copied.sort_unstable();
        if self.copied.len() == sources.len() {
            self.machine.observe_copy(&to, self.copied.split_off(0), &roster);
            self.pending.retain(|it| !matches!(it, Command::Copy { .. }));
        }
    }

    /// The answer of a process, as the operator receives it.
    fn answer(&mut self, config: &Config, process: &Process) -> Answer {
        let mut answer = process.answer();
        let own = process.own_roster();
        match config.fault {
            Some(Fault::CloseComparesAddress) if own.is_none() => {
                if let Some(roster) = &process.roster {
                    let mut seats = roster.seats.iter();
                    let seat = seats.find(|seat| seat.address == process.address);
                    answer.process = seat.map_or(process.id, |seat| seat.process);
                    answer.is_admitted = process.is_admitted;
                }
            }
            Some(Fault::UnadmittedCounts) => {
                answer.is_admitted = own.is_some_and(|own| {
                    process.is_admitted || own.staying().any(|seat| seat.process == process.id)
                });
            }
            Some(Fault::CopyReadsEarly) => {
                let mut seen = self.lies.counters.iter();
                if !seen.any(|seen| seen.0 == process.id) {
                    self.lies.counters.push((process.id, process.node.counter));
                }
            }
            _ => {}
        }
        let taken = self.lies.taken.iter().rev().find(|taken| taken.0 == process.id);
        if let Some((_, roster)) = taken
            && own.is_some_and(|own| own.term < roster.term)
        {
            answer.roster = Some(*roster);
            answer.is_admitted &= roster.staying().any(|seat| seat.process == process.id);
        }
        answer
    }
}

//! Clients: one acquire each, its lease, and the lease's renewals and joins.
//!
//! A client knows any roster under which a process votes, also if it is undecided. An acquire and a
//! renewal use one roster. An acquire takes one step, or each grant and each seal is one. Their answers
//! come at once: the other model has late ones.

use super::{
    config::{Config, Fault},
    process::Process,
    state::{State, bit},
};
use crate::{
    id::{Holder, Token},
    redlock::{
        machines::acquire::{Acquire, Answer, Command, Vote},
        roster::Roster,
    },
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// The roster that its requests name.
    roster: Option<Roster>,
    /// The round, if it takes many steps.
    round: Option<Acquire>,
    /// The highest token issued before the round or the renewal started.
    issued_before: Token,
    /// The token; 0 before the round reports it.
    token: Token,
    /// The processes that granted the lock; then those that sealed the token, and later those of the last
    /// renewal.
    held: u8,
    /// The processes that a renewal under way has renewed.
    renewed: u8,
    is_renewing: bool,
    /// Whether its lease has ended once.
    has_ended: bool,
    /// The waits that last until its lease has ended.
    awaited_by: u32,
    /// Those that last until the lease has ended which the renewal under way prolongs.
    renewal_awaited_by: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Round,
    Lease,
    /// The deadline has passed.
    Ended,
}

/// A step of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientStep {
    /// The client acquires the lock on these processes.
    Acquire(u8, Box<Roster>),
    /// A process grants the lock under this roster. The first grant starts the round.
    Grant(u8, Box<Roster>),
    /// A process is asked to seal the round's token.
    Seal(u8),
    /// The client returns the round's token.
    Return,
    /// The client starts a renewal under a roster, and gives up the one before.
    StartRenewal(Box<Roster>),
    /// A process renews the lock, and counts.
    Renew(u8),
    /// The renewal has M processes.
    CompleteRenewal,
    /// A free process is joined.
    Join(u8),
    /// The lease ends.
    End,
}

impl Client {
    pub(crate) fn add_steps(
        config: &Config,
        state: &State,
        holder: Holder,
        steps: &mut Vec<ClientStep>,
    ) {
        let client = &state.clients[holder.index()];
        match client.phase {
            Phase::Idle => {
                // The clients are alike, so they start in their order.
                let mut others = state.clients[..holder.index()].iter();
                if others.all(|other| other.phase != Phase::Idle) {
                    for roster in state.rosters() {
                        if config.round_steps {
                            let mut round = *client;
                            round.start_round(roster);
                            round.add_round_steps(config, state, steps);
                            continue;
                        }
                        let voters =
                            voters(config, state, &roster).map(|process| 1_u8 << process.id);
                        let voters = voters.fold(0, |all: u8, one| all | one);
                        let majorities = (1..=voters).filter(|mask| {
                            mask & !voters == 0 && mask.count_ones() as usize >= roster.majority()
                        });
                        steps.extend(
                            majorities.map(|mask| ClientStep::Acquire(mask, Box::new(roster))),
                        );
                    }
                }
            }
            Phase::Round => {
                steps.push(ClientStep::End);
                client.add_round_steps(config, state, steps);
            }
            Phase::Lease => {
                steps.push(ClientStep::End);
                if config.renewals {
                    client.add_renewal_steps(config, state, holder, steps);
                }
            }
            Phase::Ended if client.is_renewing => {
                steps.push(ClientStep::End);
                client.add_renewal_steps(config, state, holder, steps);
            }
            Phase::Ended if config.late_renewals && client.token != 0 => {
                steps.extend(
                    state.rosters().into_iter().map(Box::new).map(ClientStep::StartRenewal),
                );
            }
            Phase::Ended => {}
        }
    }

    fn start_round(&mut self, roster: Roster) {
        self.phase = Phase::Round;
        self.round = Some(Acquire::new(roster.seats.len()));
        self.roster = Some(roster);
    }

    fn add_round_steps(&self, config: &Config, state: &State, steps: &mut Vec<ClientStep>) {
        let (Some(roster), Some(round)) = (&self.roster, &self.round) else { return };
        for process in voters(config, state, roster) {
            let Some(seat) = seat_of(roster, process.id) else { continue };
            match round.votes[seat] {
                Vote::Open if process.node.lock.is_none() => {
                    steps.push(ClientStep::Grant(process.id, Box::new(*roster)));
                }
                Vote::Sealing => steps.push(ClientStep::Seal(process.id)),
                _ => {}
            }
        }
        if self.token != 0 {
            steps.push(ClientStep::Return);
        }
    }

    /// The processes that have sealed the round's token.
    fn sealed(&self) -> u8 {
        let (Some(roster), Some(round)) = (&self.roster, &self.round) else { return 0 };
        let seats = roster.seats.iter().zip(round.votes.iter());
        let sealed = seats.filter(|(_, vote)| **vote == Vote::Sealed);
        sealed.fold(0, |all, (seat, _)| all | 1 << seat.process)
    }

    /// Reports the answer of a process to the round.
    fn count(&mut self, process: u8, answer: Answer) -> Option<()> {
        let seat = seat_of(&self.roster?, process)?;
        for command in self.round.as_mut()?.on(seat, answer) {
            if let Command::Report(token) = command {
                self.token = token;
            }
        }
        Some(())
    }

    fn add_renewal_steps(
        &self,
        config: &Config,
        state: &State,
        holder: Holder,
        steps: &mut Vec<ClientStep>,
    ) {
        let Some(own) = self.roster else { return };
        if self.phase == Phase::Lease {
            let rosters = state.rosters().into_iter().filter(|roster| {
                if *roster == own {
                    self.is_renewal_of_use(config, state)
                } else {
                    roster.term >= own.term
                }
            });
            steps.extend(rosters.map(Box::new).map(ClientStep::StartRenewal));
        }
        for process in voters(config, state, &own) {
            match process.node.lock {
                None => steps.push(ClientStep::Join(process.id)),
                Some(lock) if lock.holder == holder && lock.floor <= self.token => {
                    if self.is_renewing && !bit(self.renewed, process.id) {
                        steps.push(ClientStep::Renew(process.id));
                    }
                }
                Some(_) => {}
            }
        }
        if self.is_renewing && self.renewed.count_ones() as usize >= own.majority() {
            steps.push(ClientStep::CompleteRenewal);
        }
    }

    /// Whether a renewal under the same roster may have an effect. If locks expire early, it has one
    /// only after a higher token.
    fn is_renewal_of_use(&self, config: &Config, state: &State) -> bool {
        !config.early_expiry || state.history.highest_issued() > self.token
    }

    pub(crate) fn apply(
        config: &Config,
        state: &mut State,
        holder: Holder,
        step: ClientStep,
    ) -> Option<()> {
        let State { clients, processes, history, .. } = state;
        let client = &mut clients[holder.index()];
        match step {
            ClientStep::Acquire(mask, roster) => {
                let is_asked = |process: &&mut Process| bit(mask, process.id);
                let mut grants = Vec::new();
                for process in processes.iter_mut().filter(is_asked) {
                    grants.push(process.node.grant(holder)?.number);
                }
                let token = *grants.iter().max()?;
                for (process, grant) in processes.iter_mut().filter(is_asked).zip(grants) {
                    process.node.seal(holder, [grant, token], token, None);
                }
                history.issue(token, history.highest_issued());
                let roster = Some(*roster);
                *client =
                    Self { phase: Phase::Lease, roster, token, held: mask, ..Self::default() };
            }
            ClientStep::Grant(process, roster) => {
                if client.phase == Phase::Idle {
                    client.start_round(*roster);
                    client.issued_before = history.highest_issued();
                }
                let grant = processes[usize::from(process)].node.grant(holder)?.number;
                client.held |= 1 << process;
                client.count(process, Answer::Granted(grant))?;
            }
            ClientStep::Seal(process) => {
                let (node, token) =
                    (&mut processes[usize::from(process)].node, client.round?.token?);
                // A process grants the lock to a holder once.
                let grant = node.lock.map_or(0, |lock| lock.grant);
                let sealed = node.seal(holder, [grant, token], token, None);
                client.count(process, sealed.map_or(Answer::Rejected, |_| Answer::Sealed))?;
            }
            ClientStep::Return => {
                history.issue(client.token, client.issued_before);
                let held = client.sealed();
                *client =
                    Self { phase: Phase::Lease, round: None, issued_before: 0, held, ..*client };
            }
            ClientStep::StartRenewal(roster) => {
                client.roster = Some(*roster);
                client.issued_before = history.highest_issued();
                client.is_renewing = true;
                client.renewed = 0;
                client.renewal_awaited_by = 0;
            }
            ClientStep::Renew(process) => client.renewed |= 1 << process,
            ClientStep::CompleteRenewal => {
                history.prolong(client.token, client.issued_before);
                *client = Self {
                    phase: Phase::Lease,
                    held: client.renewed,
                    awaited_by: client.renewal_awaited_by,
                    ..client.without_renewal()
                };
            }
            ClientStep::Join(process) => {
                let node = &mut processes[usize::from(process)].node;
                node.join(holder, client.token, client.token, None)?;
            }
            ClientStep::End if client.has_ended || !config.late_renewals => {
                *client = Self { phase: Phase::Ended, ..Self::default() };
            }
            ClientStep::End => {
                *client = Self {
                    phase: Phase::Ended,
                    held: 0,
                    has_ended: true,
                    awaited_by: 0,
                    ..client.without_renewal()
                };
            }
        }
        let leases = state.clients.iter().filter(|client| client.phase == Phase::Lease);
        state.leases_overlapped |= !config.early_expiry && leases.count() > 1;
        Some(())
    }

    fn without_renewal(self) -> Self {
        Self { issued_before: 0, renewed: 0, is_renewing: false, renewal_awaited_by: 0, ..self }
    }

    pub(crate) fn start_wait(&mut self, wait: u32) {
        if matches!(self.phase, Phase::Round | Phase::Lease) {
            self.awaited_by |= wait;
        }
        if self.is_renewing {
            self.renewal_awaited_by |= wait;
        }
    }

    pub(crate) fn is_awaited(&self, wait: u32) -> bool {
        (self.awaited_by | self.renewal_awaited_by) & wait != 0
    }

    /// Whether the lock on a process may expire although its clock is right.
    pub(crate) fn may_expire(&self, process: u8) -> bool {
        !bit(self.held | self.renewed, process)
    }

    /// Whether it has not begun its acquire.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Whether it holds the lock on a process that has taken a seat.
    pub(crate) fn holds_new(&self, seats: u8) -> bool {
        self.phase == Phase::Lease && self.held >= 1 << seats
    }

    /// Whether its lease was renewed under another roster than the first.
    pub(crate) fn is_renewed_later(&self) -> bool {
        self.is_renewing
            && self.roster.is_some_and(|roster| {
                roster.term > 1 && self.renewed.count_ones() as usize >= roster.majority()
            })
    }
}

fn seat_of(roster: &Roster, process: u8) -> Option<usize> {
    roster.seats.iter().position(|seat| seat.process == process)
}

/// The processes that vote for a client's requests under a roster.
pub(super) fn voters<'a>(
    config: &'a Config,
    state: &'a State,
    roster: &'a Roster,
) -> impl Iterator<Item = &'a Process> {
    let ignores_process = config.fault == Some(Fault::VoteIgnoresProcess);
    state.processes.iter().filter(move |process| {
        (process.votes() || ignores_process && process.is_admitted)
            && process.roster.is_some_and(|own| is_same(config, &own, roster))
    })
}

/// Whether a process that votes for `own` takes a request that names this roster.
pub(super) fn is_same(config: &Config, own: &Roster, named: &Roster) -> bool {
    match config.fault {
        Some(Fault::VotesAcrossRosters) => true,
        Some(Fault::VotesCompareTerm) => own.term == named.term,
        _ => own == named,
    }
}

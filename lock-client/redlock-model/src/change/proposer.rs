//! Proposers: operators who change the members.
//!
//! A ballot decides one epoch, as in Paxos. Its acceptors are the members of the epoch before.
//! A promise is phase 1, a close is phase 2. An answer arrives in the step of its request, or never:
//! a promise whose answer is lost only rejects lower ballots, as if their messages were lost.

use super::{
    config::{ChangeId, Config},
    rules::{CloseRule, DecisionRule, MissedRule, PromiseRule, WaitRule},
    state::{Member, State},
};
use crate::id::{MOST_NODES, NodeId, NodeSet};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Proposer {
    pub(crate) phase: Phase,
    /// How many ballots it has started.
    pub(crate) started: u8,
    pub(crate) ballot: u8,
    /// The nodes that promised this ballot.
    pub(crate) promised: NodeSet,
    /// Of the proposals that these have accepted, the one with the highest ballot.
    pub(crate) found: Option<(u8, ChangeId)>,
    /// The change that it proposes.
    pub(crate) change: ChangeId,
    /// The nodes that answered that they accepted it.
    pub(crate) closed: NodeSet,
    /// The nodes that restarted after they promised.
    pub(crate) restarted: NodeSet,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Promising,
    Closing,
    Decided,
}

/// A step of a proposer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposerStep {
    /// It starts a ballot, and gives up the one before.
    Start,
    /// A node promises the ballot.
    Promise(NodeId),
    /// It proposes a change to those that promised.
    Propose,
    /// A node accepts the change, and closes its epoch.
    Close(NodeId),
    /// It reads the closed nodes again, and concludes that the change is decided.
    Decide,
}

impl Proposer {
    /// The steps of a proposer that are possible.
    pub(crate) fn steps(config: &Config, state: &State, index: usize) -> Vec<ProposerStep> {
        let proposer = &state.proposers[index];
        let base = config.base(config.proposals[index]);
        let nodes = NodeId::first(MOST_NODES);
        let mut steps = Vec::new();
        if proposer.started < config.ballots[index]
            && proposer.phase != Phase::Decided
            && state.is_decided(base)
        {
            steps.push(ProposerStep::Start);
        }
        match proposer.phase {
            Phase::Idle => {}
            Phase::Promising => {
                let promising = nodes.filter(|id| {
                    let member = state.member(*id);
                    config.members(base).contains(*id)
                        && takes_part(config, member, base)
                        && member.promised < proposer.ballot
                });
                steps.extend(promising.map(ProposerStep::Promise));
                if proposer.may_propose(config, base) {
                    steps.push(ProposerStep::Propose);
                }
            }
            Phase::Closing => {
                let closing = nodes.filter(|id| proposer.may_close(config, state, *id, base));
                steps.extend(closing.map(ProposerStep::Close));
                if proposer.is_decided(config, state, base) {
                    steps.push(ProposerStep::Decide);
                }
            }
            Phase::Decided => {
                let late = nodes.filter(|id| proposer.may_close_late(config, state, *id, base));
                steps.extend(late.map(ProposerStep::Close));
            }
        }
        steps
    }

    fn may_propose(&self, config: &Config, base: ChangeId) -> bool {
        let still_promised = self.promised.iter().filter(|id| !self.restarted.contains(*id));
        match config.rules.promise {
            PromiseRule::AdoptsHighest => config.is_majority(base, still_promised.count()),
            PromiseRule::NotReadAgain | PromiseRule::ProposesItsOwn => {
                config.is_majority(base, self.promised.len())
            }
            PromiseRule::NoPromise => true,
        }
    }

    fn may_close(&self, config: &Config, state: &State, id: NodeId, base: ChangeId) -> bool {
        let is_bound = match config.rules.close {
            _ if config.rules.promise == PromiseRule::NoPromise => true,
            CloseRule::PromisedProcesses => {
                self.promised.contains(id) && !self.restarted.contains(id)
            }
            CloseRule::PromisedNodes => self.promised.contains(id),
            CloseRule::AnyNode => true,
        };
        let member = state.member(id);
        is_bound
            && config.members(base).contains(id)
            && takes_part(config, member, base)
            && member.promised <= self.ballot
    }

    /// Whether a member may close after the decision. It need not have promised.
    fn may_close_late(&self, config: &Config, state: &State, id: NodeId, base: ChangeId) -> bool {
        let member = state.member(id);
        let missed_an_epoch = config.rules.missed == MissedRule::ClosesDirectly
            && member.node.is_admitted()
            && config.epoch(member.change) < config.epoch(base);
        member.change != self.change
            && config.members(base).contains(id)
            && (takes_part(config, member, base) || missed_an_epoch)
            && member.promised <= self.ballot
    }

    fn is_decided(&self, config: &Config, state: &State, base: ChangeId) -> bool {
        let holds = |id: NodeId| state.member(id).votes_under(self.change);
        let still_holds = |id: NodeId| {
            self.closed.contains(id)
                && !self.restarted.contains(id)
                && holds(id)
                && state.member(id).accepted == self.ballot
        };
        let count = |condition: &dyn Fn(NodeId) -> bool| {
            config.members(base).iter().filter(|id| condition(*id)).count()
        };
        let majority = config.majority(base);
        match config.rules.decision {
            DecisionRule::SameBallotReadAgain => count(&still_holds) >= majority,
            DecisionRule::AnyBallot => count(&holds) >= majority,
            DecisionRule::NotReadAgain => self.closed.len() >= majority,
            DecisionRule::FewerThanMajority => count(&still_holds) >= majority - 1,
        }
    }

    pub(crate) fn apply(config: &Config, state: &mut State, index: usize, step: ProposerStep) {
        let State { proposers, members, .. } = state;
        let proposer = &mut proposers[index];
        let own = config.proposals[index];
        match step {
            ProposerStep::Start => {
                let ballot = 1 + index as u8 + proposer.started * config.proposals.len() as u8;
                let started = proposer.started + 1;
                *proposer = Self { phase: Phase::Promising, started, ballot, ..Self::default() };
            }
            ProposerStep::Promise(id) => {
                let member = &mut members[id.index()];
                member.promised = proposer.ballot;
                proposer.promised.insert(id);
                if config.follows(member.change, config.base(own)) {
                    proposer.found = proposer.found.max(Some((member.accepted, member.change)));
                }
            }
            ProposerStep::Propose => {
                proposer.phase = Phase::Closing;
                proposer.change = match proposer.found.take() {
                    Some((_, change)) if config.rules.promise != PromiseRule::ProposesItsOwn => {
                        change
                    }
                    _ => own,
                };
                if config.rules.wait == WaitRule::FromProposal {
                    let change = proposer.change;
                    state.start_wait_of_new_nodes(config, change);
                }
            }
            ProposerStep::Close(id) => {
                let member = &mut members[id.index()];
                member.change = proposer.change;
                member.promised = proposer.ballot;
                member.accepted = proposer.ballot;
                if proposer.phase == Phase::Closing {
                    proposer.closed.insert(id);
                }
            }
            ProposerStep::Decide => {
                let Self { started, ballot, change, .. } = *proposer;
                let phase = Phase::Decided;
                *proposer = Self { phase, started, ballot, change, ..Self::default() };
                state.decide(config, change);
            }
        }
    }

    /// The node loses its process, which it promised or closed with.
    pub(crate) fn observe_restart(&mut self, id: NodeId) {
        if matches!(self.phase, Phase::Promising | Phase::Closing) && self.promised.contains(id)
            || self.closed.contains(id)
        {
            self.restarted.insert(id);
        }
    }
}

/// Whether a node answers a ballot that decides the epoch after `base`: it votes, and is in that
/// epoch or has closed it.
fn takes_part(config: &Config, member: &Member, base: ChangeId) -> bool {
    member.node.is_admitted() && (member.change == base || config.follows(member.change, base))
}

impl State {
    fn decide(&mut self, config: &Config, change: ChangeId) {
        if self.is_decided(change) {
            return;
        }
        let mut others = config.change_ids().filter(|other| *other != change && *other != 0);
        self.decided_twice |= others
            .any(|other| self.is_decided(other) && config.epoch(other) == config.epoch(change));
        self.decided |= 1 << change;
        if matches!(config.rules.wait, WaitRule::FromDecision | WaitRule::NotIfMissed) {
            self.start_wait_of_new_nodes(config, change);
        }
    }

    fn start_wait_of_new_nodes(&mut self, config: &Config, change: ChangeId) {
        let members = config.members(change);
        let new = members.iter().filter(|id| config.is_new(*id, change));
        new.for_each(|id| self.start_wait(id));
    }
}

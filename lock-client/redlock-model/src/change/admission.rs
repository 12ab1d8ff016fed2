//! What happens to a node: expiry, restarts, and its admission into a change.

use super::{
    config::{ChangeId, Config},
    rules::{AdmissionRule, CopyRule, MissedRule, SourceRule, WaitRule},
    state::{Member, State},
};
use crate::{
    id::{MOST_NODES, NodeId, NodeSet},
    node::Vote,
};

/// A step of a node, or of an operator who admits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStep {
    /// The lock expires.
    Expire,
    /// The node saves a copy of its lock and its counter.
    Save,
    /// The node restarts. It loses everything, or comes back with its saved copy.
    Restart,
    /// An operator prepares the node for a change: it rejects everything until its admission.
    Prepare(ChangeId),
    /// The node copies another node's counter.
    Copy(NodeId),
    /// The node is admitted: it votes.
    Admit,
}

impl NodeStep {
    /// The steps of a node that are possible.
    pub(crate) fn all(config: &Config, state: &State, id: NodeId) -> Vec<Self> {
        let member = state.member(id);
        let mut steps = Vec::new();
        if let Some(lock) = member.node.lock
            && (config.early_expiry || state.client(lock.holder).may_expire(id))
        {
            steps.push(Self::Expire);
        }
        let is_used = member.node.is_admitted() || member.change != 0;
        if state.restarts < config.restarts && is_used {
            steps.push(Self::Restart);
            // One copy is enough for one restart. An empty one is as good as none.
            let has_copy = state.members.iter().any(|member| member.node.copy.is_some());
            if config.old_copies && !has_copy && member.node.counter > 0 {
                steps.push(Self::Save);
            }
        }
        let changes = config.change_ids();
        steps.extend(
            changes.filter(|change| may_prepare(config, state, id, *change)).map(Self::Prepare),
        );
        let Vote::Withheld { copied_from } = member.node.vote else { return steps };
        let change = member.change;
        if !config.members(change).contains(id) {
            return steps;
        }
        let may_copy = match config.rules.copy {
            CopyRule::AfterTheWait => wait_is_over(config, state, id),
            CopyRule::BeforeTheWait => !config.is_new(id, change) || state.is_decided(change),
            CopyRule::BeforeTheClose => true,
        };
        if may_copy {
            let sources = sources(config, state, id, change);
            steps
                .extend(sources.iter().filter(|from| !copied_from.contains(*from)).map(Self::Copy));
        }
        let needed = match config.rules.sources {
            SourceRule::FewerThanMajority => config.majority(change) - 1,
            _ => config.majority(change),
        };
        if wait_is_over(config, state, id) && copied_from.len() >= needed {
            steps.push(Self::Admit);
        }
        steps
    }

    pub(crate) fn apply(self, config: &Config, state: &mut State, id: NodeId) {
        let from = match self {
            Self::Copy(from) => *state.member(from),
            _ => *state.member(id),
        };
        let member = state.member_mut(id);
        match self {
            Self::Expire => member.node.lock = None,
            Self::Save => member.node.save(),
            Self::Restart => restart(config, state, id),
            Self::Prepare(change) => prepare(config, state, id, change),
            Self::Copy(source) => {
                member.node.copy_counter(from.node.counter, source);
                if config.rules.admission != AdmissionRule::ForgetsPromise {
                    member.promised = member.promised.max(from.promised);
                }
                if config.rules.admission != AdmissionRule::ForgetsBallot
                    && member.change == from.change
                {
                    member.accepted = member.accepted.max(from.accepted);
                }
            }
            Self::Admit => member.node.vote = Vote::Admitted,
        }
    }
}

/// Whether an operator may prepare a node for a change: a new node for a decided one, a restarted
/// node for that of any voter.
fn may_prepare(config: &Config, state: &State, id: NodeId, change: ChangeId) -> bool {
    let member = state.member(id);
    let is_older = config.epoch(member.change) < config.epoch(change);
    let missed_an_epoch = config.rules.missed == MissedRule::IsAdmitted
        && is_older
        && config.epoch(member.change) < config.epoch(config.base(change));
    config.members(change).contains(id)
        && if member.node.is_admitted() {
            state.is_decided(change) && (config.is_new(id, change) && is_older || missed_an_epoch)
        } else {
            member.change != change
                && (config.rules.copy == CopyRule::BeforeTheClose
                    || state.is_decided(change)
                    || state.has_voters(config, change))
        }
}

/// Whether everything has ended that the admission of a node waits for.
fn wait_is_over(config: &Config, state: &State, id: NodeId) -> bool {
    let Member { node, change, .. } = *state.member(id);
    let is_decided = !config.is_new(id, change) || state.is_decided(change);
    is_decided && node.lock.is_none() && state.wait_is_over(id)
}

/// The nodes that a node may copy counters from.
fn sources(config: &Config, state: &State, id: NodeId, change: ChangeId) -> NodeSet {
    let members = config.members(change);
    let base = config.members(config.base(change));
    let is_any_change = config.rules.sources == SourceRule::AnyChange
        || config.rules.copy == CopyRule::BeforeTheClose;
    NodeSet::from_condition(MOST_NODES, |from| {
        let other = state.member(from);
        from != id
            && if is_any_change {
                other.node.is_admitted() && (members.contains(from) || base.contains(from))
            } else {
                members.contains(from) && other.votes_under(change)
            }
    })
}

/// A new node has waited since the decision. A member waits from now on: it may not have taken part
/// in the epoch before.
fn prepare(config: &Config, state: &mut State, id: NodeId, change: ChangeId) {
    let has_missed = state.member(id).node.is_admitted() && !config.is_new(id, change);
    state.member_mut(id).prepare(change);
    if has_missed && config.rules.wait == WaitRule::NotIfMissed {
        state.clients.iter_mut().for_each(|client| client.stop_wait(id));
    } else if !config.is_new(id, change) {
        state.start_wait(id);
    }
}

fn restart(config: &Config, state: &mut State, id: NodeId) {
    state.restarts += 1;
    state.restarted.insert(id);
    let member = state.member_mut(id);
    let vote = member.node.vote;
    let change = member.change;
    member.node.restart();
    member.promised = 0;
    member.accepted = 0;
    // The record is written anew when the node is prepared.
    member.change = 0;
    if config.rules.admission == AdmissionRule::IgnoresProcess && vote != Vote::Admitted {
        member.node.vote = vote;
        member.change = change;
    }
    for client in state.clients.iter_mut().filter(|client| client.is_active()) {
        client.restarted.insert(id);
    }
    state.start_wait(id);
    state.proposers.iter_mut().for_each(|proposer| proposer.observe_restart(id));
    if state.restarts == config.restarts {
        state.members.iter_mut().for_each(|member| member.node.copy = None);
    }
}

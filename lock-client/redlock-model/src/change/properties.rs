//! What must always hold during changes, and what must happen at least once.

use super::{
    client,
    config::Config,
    proposer::{Phase, Proposer},
    state::State,
};
use crate::{
    id::{MOST_NODES, NodeId},
    properties::{NO_LEASE_OUTLIVES, TOKENS_ARE_UNIQUE, TOKENS_GROW},
};

/// No two changes are decided for one epoch.
pub const EPOCHS_ARE_DECIDED_ONCE: &str = "an epoch is decided once";
/// If no lock expires early, no two leases overlap.
pub const LEASES_EXCLUDE: &str = "leases exclude each other";
/// The properties that must always hold.
pub const SAFETY: [&str; 5] =
    [TOKENS_ARE_UNIQUE, TOKENS_GROW, NO_LEASE_OUTLIVES, EPOCHS_ARE_DECIDED_ONCE, LEASES_EXCLUDE];

/// A situation that the safety properties must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// A change is decided.
    Decided,
    /// A new node votes.
    NewNodeVotes,
    /// A client holds the lock on a new node.
    HeldByNewNode,
    /// A proposer decided the change of another.
    FinishedByOther,
    /// All members of both sets have closed.
    LateMemberClosed,
    /// A restarted member votes again while a ballot is under way that has closed another member.
    AdmittedDuringBallot,
    /// A restarted member votes again in a decided epoch.
    AdmittedAfterDecision,
    /// A lease from before the decision is renewed after it.
    RenewedAfterDecision,
    /// The epoch after a changed one is decided.
    DecidedAgain,
}

impl Situation {
    /// All situations.
    pub(crate) const ALL: [Self; 9] = [
        Self::Decided,
        Self::NewNodeVotes,
        Self::HeldByNewNode,
        Self::FinishedByOther,
        Self::LateMemberClosed,
        Self::AdmittedDuringBallot,
        Self::AdmittedAfterDecision,
        Self::RenewedAfterDecision,
        Self::DecidedAgain,
    ];

    /// The situation in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decided => "a change is decided",
            Self::NewNodeVotes => "a new node votes",
            Self::HeldByNewNode => "a client holds the lock on a new node",
            Self::FinishedByOther => "a proposer decides the change of another",
            Self::LateMemberClosed => "all members of both sets have closed",
            Self::AdmittedDuringBallot => "a restarted member votes again during a ballot",
            Self::AdmittedAfterDecision => "a restarted member votes again after the decision",
            Self::RenewedAfterDecision => "a lease is renewed across the decision",
            Self::DecidedAgain => "the next epoch is decided, too",
        }
    }

    pub(crate) fn occurs_in(self, config: &Config, state: &State) -> bool {
        let decided =
            || config.change_ids().filter(|change| *change != 0 && state.is_decided(*change));
        let old = config.members(0);
        let readmitted = || {
            let mut nodes = state.restarted.iter().filter(|id| old.contains(*id));
            nodes.find(|id| state.member(*id).node.is_admitted())
        };
        match self {
            Self::Decided => decided().next().is_some(),
            Self::NewNodeVotes => NodeId::first(MOST_NODES)
                .any(|id| !old.contains(id) && state.member(id).node.is_admitted()),
            Self::HeldByNewNode => state.clients.iter().any(|client| {
                client.phase == client::Phase::Lease
                    && client.held.iter().any(|id| !old.contains(id))
            }),
            Self::FinishedByOther => proposers(config, state)
                .any(|(proposer, own)| proposer.phase == Phase::Decided && proposer.change != own),
            Self::LateMemberClosed => decided().any(|change| {
                let members = config.members(change);
                let both = config.members(config.base(change));
                both.iter()
                    .filter(|id| members.contains(*id))
                    .all(|id| state.member(id).votes_under(change))
            }),
            Self::AdmittedDuringBallot => {
                let is_open = |id| state.member(id).change == 0;
                readmitted().is_some_and(is_open)
                    && proposers(config, state).any(|(proposer, _)| {
                        proposer.phase == Phase::Closing && !proposer.closed.is_empty()
                    })
            }
            Self::AdmittedAfterDecision => {
                readmitted().is_some_and(|id| state.member(id).change != 0)
            }
            Self::RenewedAfterDecision => state.clients.iter().any(|client| {
                !client.awaited_by.is_empty()
                    && client.is_renewing
                    && client.renewal_awaited_by.is_empty()
                    && client.change != 0
                    && config.is_majority(client.change, client.renewed.len())
            }),
            Self::DecidedAgain => decided().any(|change| config.epoch(change) > 1),
        }
    }
}

fn proposers<'a>(config: &'a Config, state: &'a State) -> impl Iterator<Item = (&'a Proposer, u8)> {
    state.proposers.iter().zip(config.proposals.iter().copied())
}

//! What must always hold, and what must happen at least once.
//!
//! A safety property must hold in every state. A [`Situation`] must occur in some state: otherwise
//! a model would be safe only because nothing interesting happens in it.

use crate::{
    client::{Client, Phase},
    id::NodeId,
    redlock::{
        machines::{
            update::{Purpose, Request},
            votes::Vote,
        },
        majority::majority,
    },
    state::State,
};

/// No token is issued twice, neither to two holders nor to one.
pub const TOKENS_ARE_UNIQUE: &str = "tokens are unique";
/// An operation that starts after a token was issued returns a higher token.
pub const TOKENS_GROW: &str = "tokens grow in real time";
/// Once a client was given a higher token, no renewal or reissue of a lower lease that begins later
/// succeeds.
pub const NO_LEASE_OUTLIVES: &str = "no lease outlives a higher token";

/// A situation that the safety properties must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// Two clients have leases at the same time, because a lock expired early.
    TwoLeases,
    /// A client can acquire although fewer than M nodes granted its token themselves.
    SealNeeded,
    /// A node granted the lock to a client that had already ended.
    LateGrant,
    /// A lease has a reissued token.
    Reissued,
    /// A renewal found that M nodes have sealed a token that the client did not know.
    RenewedWithNewToken,
    /// A renewal counts a node that was joined with a floor above the lease's first token: a
    /// reissue has made it count.
    Regained,
}

impl Situation {
    pub(crate) const ALL: [Self; 6] = [
        Self::TwoLeases,
        Self::SealNeeded,
        Self::LateGrant,
        Self::Reissued,
        Self::RenewedWithNewToken,
        Self::Regained,
    ];

    pub(crate) fn occurs_in(self, state: &State, nodes: usize) -> bool {
        match self {
            Self::TwoLeases => leases(state).count() >= 2,
            Self::SealNeeded => state.clients.iter().any(|client| needs_seal(client, nodes)),
            Self::LateGrant => has_late_grant(state),
            Self::Reissued => leases(state).any(|client| client.token > client.grant),
            Self::RenewedWithNewToken => leases(state).any(|client| {
                client.returning.is_some_and(|returning| {
                    returning.purpose == Purpose::Renewal && returning.token > client.token
                })
            }),
            Self::Regained => leases(state).any(|client| has_regained(state, client, nodes)),
        }
    }
}

fn needs_seal(client: &Client, nodes: usize) -> bool {
    let asked = client.sent.seals.iter().filter(|grant| **grant != 0).count();
    client.can_acquire() && client.granters().len() - asked < majority(nodes)
}

fn has_late_grant(state: &State) -> bool {
    state.nodes.iter().filter_map(|node| node.lock).any(|lock| {
        let client = state.client(lock.holder);
        client.has_ended() && lock.grant > client.token
    })
}

/// Whether a renewal counts a node whose floor is above the token that the lease had at first.
fn has_regained(state: &State, client: &Client, nodes: usize) -> bool {
    let counts = |node: NodeId| {
        client
            .update
            .is_some_and(|update| matches!(update.votes.votes[node.index()], Vote::Counts(_)))
            && state.node(node).lock.is_some_and(|lock| lock.floor > client.grant)
    };
    client.request() == Some(Request::Renew) && NodeId::first(nodes).any(counts)
}

fn leases(state: &State) -> impl Iterator<Item = &Client> {
    state.clients.iter().filter(|client| client.phase == Phase::Lease)
}

//! What must always hold, and what must happen at least once.
//!
//! A safety property must hold in every state. A [`Situation`] must occur in some state: otherwise
//! a model would be safe only because nothing interesting happens in it.

use crate::{
    client::{Client, Phase},
    id::{MAJORITY, NODES},
    state::State,
};

/// No token is issued twice, neither to two holders nor to one.
pub const TOKENS_ARE_UNIQUE: &str = "tokens are unique";
/// An operation that starts after a token was issued returns a higher token.
pub const TOKENS_GROW: &str = "tokens grow in real time";
/// No client overwrites an accepted write that it has not read.
pub const NO_WRITE_IS_LOST: &str = "no accepted write is lost";
/// The properties that must always hold.
pub const SAFETY: [&str; 3] = [TOKENS_ARE_UNIQUE, TOKENS_GROW, NO_WRITE_IS_LOST];

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
    /// M nodes answered a renewal with a token that the client did not know.
    RenewedWithNewToken,
    /// A client acquired with the grants of all nodes, after one of them restarted.
    AdmittedAgain,
}

impl Situation {
    /// The number of situations.
    pub(crate) const COUNT: usize = Self::AdmittedAgain as usize + 1;

    /// The situation in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TwoLeases => "two clients have leases",
            Self::SealNeeded => "a client needs a seal to acquire",
            Self::LateGrant => "a grant comes after its client has ended",
            Self::Reissued => "a lease has a reissued token",
            Self::RenewedWithNewToken => "a renewal finds a new token",
            Self::AdmittedAgain => "a restarted node votes again",
        }
    }

    pub(crate) fn occurs_in(self, state: &State) -> bool {
        match self {
            Self::TwoLeases => leases(state).count() >= 2,
            Self::SealNeeded => state.clients.iter().any(needs_seal),
            Self::LateGrant => has_late_grant(state),
            Self::Reissued => leases(state).any(|client| client.token == client.reissue.token),
            Self::RenewedWithNewToken => {
                leases(state).any(|client| client.renewed_token().is_some())
            }
            Self::AdmittedAgain => {
                state.restarts > 0 && leases(state).any(acquired_on_all_nodes_since_restart)
            }
        }
    }
}

fn needs_seal(client: &Client) -> bool {
    let granted = client.grants.iter().filter(|grant| **grant == client.grant).count();
    client.phase == Phase::Round && client.sealed.is_majority() && granted < MAJORITY
}

fn has_late_grant(state: &State) -> bool {
    state.nodes.iter().filter_map(|node| node.lock).any(|lock| {
        let client = state.client(lock.holder);
        client.has_ended() && lock.grant > client.token
    })
}

fn acquired_on_all_nodes_since_restart(client: &Client) -> bool {
    client.restarted.is_empty() && client.received.len() == NODES
}

fn leases(state: &State) -> impl Iterator<Item = &Client> {
    state.clients.iter().filter(|client| client.phase == Phase::Lease)
}

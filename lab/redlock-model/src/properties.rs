//! What has to hold always, and what has to happen sometimes.

use crate::{
    client::{Client, Phase},
    id::{MAJORITY, NODES},
    state::State,
};

/// No two holders are told the same token, nor is one told it twice.
pub const UNIQUE: &str = "tokens are unique";
/// Who begins after a token was told is told a higher one.
pub const GROWING: &str = "tokens grow in real time";
/// Nobody overwrites what was accepted without having read it.
pub const NOTHING_LOST: &str = "no accepted write is lost";
/// What has to hold always.
pub const ALWAYS: [&str; 3] = [UNIQUE, GROWING, NOTHING_LOST];

/// Two clients believe that they hold the lock, since it expired.
pub const TWO_LEASES: &str = "two hold leases";
/// A lease has fewer than M nodes that granted its token themselves.
pub const SEALED: &str = "a seal was needed";
/// A node grants to a client that has released.
pub const LATE_GRANT: &str = "a grant came late";
/// A lease has got another token.
pub const REISSUED: &str = "a token was reissued";
/// M nodes have answered a renewal with a token of which their client had not heard.
pub const RENEWED: &str = "a renewal told a token";
/// All nodes have granted to a client, and one of them has restarted before.
pub const ADMITTED: &str = "a node was admitted again";

pub(crate) fn two_leases(state: &State) -> bool {
    leases(state).count() >= 2
}

pub(crate) fn sealed(state: &State) -> bool {
    state.clients.iter().any(|client| {
        let granted = client.grants.iter().filter(|grant| **grant == client.grant).count();
        client.phase == Phase::Round && client.sealed.is_majority() && granted < MAJORITY
    })
}

pub(crate) fn late_grant(state: &State) -> bool {
    state.nodes.iter().filter_map(|node| node.lock).any(|lock| {
        let client = state.client(lock.holder);
        client.ended() && lock.grant > client.token
    })
}

pub(crate) fn reissued(state: &State) -> bool {
    leases(state).any(|client| client.token == client.reissue.token)
}

pub(crate) fn renewed(state: &State) -> bool {
    leases(state).any(|client| client.renewed().is_some())
}

/// A node has been admitted, and somebody has acquired with its vote since.
pub(crate) fn admitted(state: &State) -> bool {
    state.restarts > 0
        && leases(state).any(|client| client.restarted.is_empty() && client.counted.len() == NODES)
}

fn leases(state: &State) -> impl Iterator<Item = &Client> {
    state.clients.iter().filter(|client| client.phase == Phase::Lease)
}

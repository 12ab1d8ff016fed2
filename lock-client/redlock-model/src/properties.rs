//! What has to hold always, and what has to happen sometimes.

use std::sync::atomic::{AtomicBool, Ordering};

use stateright::Property;

use crate::{
    client::{Client, Phase},
    model::Redlock,
    node::{MAJORITY, NODES, Token},
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

/// What has been told so far, and what was wrong with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct History {
    /// A bit for each token.
    told: u32,
    repeated: bool,
    fell: bool,
    pub(crate) write_lost: bool,
}

impl History {
    /// Notes that somebody is told a token, who began when the highest one was `told_before`.
    pub(crate) fn tell(&mut self, token: Token, told_before: Token) {
        self.repeated |= self.told & 1 << token != 0;
        self.fell |= token <= told_before;
        self.told |= 1 << token;
    }

    pub(crate) fn highest_told(&self) -> Token {
        self.told.checked_ilog2().map_or(0, |bit| bit as Token)
    }

    pub(crate) fn forget_tokens(&mut self) {
        *self = Self { write_lost: self.write_lost, ..Self::default() };
    }

    /// Whether something is wrong. Nothing is looked at after that.
    pub(crate) fn is_broken(&self) -> bool {
        self.repeated || self.fell || self.write_lost
    }
}

/// Which situations have been reached, for stateright notes each state in which one holds, with the
/// way to it: only the first is of use.
#[derive(Debug, Default)]
pub(crate) struct Reached([AtomicBool; 6]);

impl Reached {
    fn first(&self, situation: usize, holds: bool) -> bool {
        let reached = &self.0[situation];
        holds && !reached.load(Ordering::Relaxed) && !reached.swap(true, Ordering::Relaxed)
    }
}

pub(crate) fn properties() -> Vec<Property<Redlock>> {
    vec![
        Property::always(UNIQUE, |_, state: &State| !state.history.repeated),
        Property::always(GROWING, |_, state: &State| !state.history.fell),
        Property::always(NOTHING_LOST, |_, state: &State| !state.history.write_lost),
        Property::sometimes(TWO_LEASES, |model, state| model.reached.first(0, two_leases(state))),
        Property::sometimes(SEALED, |model, state| model.reached.first(1, sealed(state))),
        Property::sometimes(LATE_GRANT, |model, state| model.reached.first(2, late_grant(state))),
        Property::sometimes(REISSUED, |model, state| model.reached.first(3, reissued(state))),
        Property::sometimes(RENEWED, |model, state| model.reached.first(4, renewed(state))),
        Property::sometimes(ADMITTED, |model, state| model.reached.first(5, admitted(state))),
    ]
}

fn two_leases(state: &State) -> bool {
    leases(state).count() >= 2
}

fn sealed(state: &State) -> bool {
    state.clients.iter().any(|client| {
        let granted = client.grants.iter().filter(|grant| **grant == client.grant).count();
        client.phase == Phase::Round && client.sealed.is_majority() && granted < MAJORITY
    })
}

fn late_grant(state: &State) -> bool {
    state.nodes.iter().filter_map(|node| node.lock).any(|lock| {
        let client = state.client(lock.holder);
        client.ended() && lock.grant > client.token
    })
}

fn reissued(state: &State) -> bool {
    leases(state).any(|client| client.token == client.reissue.token)
}

fn renewed(state: &State) -> bool {
    leases(state).any(|client| client.renewed().is_some())
}

/// A node has been admitted, and somebody has acquired with its vote since.
fn admitted(state: &State) -> bool {
    state.restarts > 0
        && leases(state).any(|client| client.restarted.is_empty() && client.counted.len() == NODES)
}

fn leases(state: &State) -> impl Iterator<Item = &Client> {
    state.clients.iter().filter(|client| client.phase == Phase::Lease)
}

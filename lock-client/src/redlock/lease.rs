//! The leases of this client, and what it knows of each on every node.
//!
//! Nodes that a lease has joined may have the lock under grants of their own. So each request names
//! the grant on its node. Another client that adopts the lease learns them from the nodes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use fence::{Holder, Token};

use super::machines::{
    lease_tokens::LeaseTokens,
    update::{Command, Update},
    votes::Event,
};
use crate::{backend::Ownership, clock::Moment, keeper::Keeper};

/// How many leases there may be before those past their deadline are forgotten.
const FEWEST_TO_FORGET: usize = 64;

/// The leases of this client, by their holders.
#[derive(Default)]
pub(super) struct Leases {
    leases: Mutex<ByHolder>,
    /// The task that keeps the connections to the nodes.
    pub(super) keeper: Keeper,
}

#[derive(Debug, Default)]
struct ByHolder {
    leases: HashMap<Holder, Arc<Lease>>,
    /// How many leases there may be before the next look for ended ones.
    most: usize,
}

/// One lease.
#[derive(Debug)]
pub(super) struct Lease {
    /// The holder, and the grant that most nodes have in common.
    pub(super) ownership: Ownership,
    state: Mutex<State>,
    /// Held during a renewal or a reissue, because those of one lease must not overlap.
    pub(super) update: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// The grants that differ from the grant of most nodes, by the nodes' addresses.
    grants: HashMap<String, Token>,
    tokens: LeaseTokens,
    /// Until when the lease is held, unless the client gives it up.
    valid_until: Moment,
    given_up: Option<GivenUp>,
}

/// How a client has given up a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivenUp {
    /// The lock was released.
    Released,
    /// The lease was left to another client.
    Detached,
}

impl Leases {
    /// Starts a lease.
    pub(super) fn start(
        &self,
        ownership: Ownership,
        token: Token,
        valid_until: Moment,
    ) -> Arc<Lease> {
        let state = State {
            grants: HashMap::new(),
            tokens: LeaseTokens::new(token),
            valid_until,
            given_up: None,
        };
        let holder = ownership.holder.clone();
        let lease = Arc::new(Lease {
            ownership,
            state: Mutex::new(state),
            update: tokio::sync::Mutex::default(),
        });
        let mut all = self.lock();
        if all.leases.len() >= all.most.max(FEWEST_TO_FORGET) {
            all.leases.retain(|_, lease| !lease.is_past_its_deadline());
            all.most = 2 * all.leases.len();
        }
        all.leases.insert(holder, lease.clone());
        lease
    }

    pub(super) fn get(&self, holder: &Holder) -> Option<Arc<Lease>> {
        self.lock().leases.get(holder).cloned()
    }

    /// Records the token of a lease that another client has held until now.
    pub(super) fn adopt(&self, ownership: &Ownership, token: Token, valid_until: Moment) {
        match self.get(&ownership.holder) {
            Some(lease) if lease.state().given_up.is_none() => lease.adopt(token, valid_until),
            _ => drop(self.start(ownership.clone(), token, valid_until)),
        }
    }

    /// Ends a lease that is about to be released, and returns it. From then on, it joins no node.
    pub(super) fn release(&self, holder: &Holder) -> Option<Arc<Lease>> {
        let lease = self.get(holder)?;
        lease.state().given_up = Some(GivenUp::Released);
        Some(lease)
    }

    /// Ends a lease that is left to another client, and returns it. From then on, it joins no node.
    pub(super) fn detach(&self, holder: &Holder) -> Option<Arc<Lease>> {
        let lease = self.lock().leases.remove(holder)?;
        lease.state().given_up = Some(GivenUp::Detached);
        Some(lease)
    }

    pub(super) fn need_connections(&self) -> bool {
        self.lock().leases.values().any(|lease| lease.needs_connections())
    }

    /// Forgets a lease.
    pub(super) fn forget(&self, holder: &Holder) {
        self.lock().leases.remove(holder);
    }

    fn lock(&self) -> MutexGuard<'_, ByHolder> {
        self.leases.lock().expect("nothing panics while it holds this lock")
    }
}

impl Lease {
    /// The ownership on one node.
    pub(super) fn ownership_on(&self, address: &str) -> Ownership {
        let grant = self.state().grants.get(address).copied().unwrap_or(self.ownership.grant);
        Ownership { holder: self.ownership.holder.clone(), grant }
    }

    /// Records the grant on a node.
    pub(super) fn set_grant(&self, address: &str, grant: Token) {
        self.state().grants.insert(address.to_owned(), grant);
    }

    pub(super) fn tokens(&self) -> LeaseTokens {
        self.state().tokens
    }

    /// The token that a majority of counting nodes has sealed.
    pub(super) fn height(&self) -> Token {
        self.tokens().height()
    }

    /// Reports an event to a renewal or reissue of this lease, which may change the lease's tokens.
    pub(super) fn count(&self, update: &mut Update, event: Event) -> Vec<Command> {
        update.on(&mut self.state().tokens, event)
    }

    /// Records the token with which another client has left the lease.
    fn adopt(&self, token: Token, valid_until: Moment) {
        let mut state = self.state();
        state.tokens = LeaseTokens::new(token.max(state.tokens.height()));
        state.valid_until = state.valid_until.max(valid_until);
    }

    pub(super) fn set_valid_until(&self, until: Moment) {
        self.state().valid_until = until;
    }

    /// Whether it was given up, or is past its deadline.
    pub(super) fn has_ended(&self) -> bool {
        let state = self.state();
        state.given_up.is_some() || state.valid_until.has_passed()
    }

    /// Whether it has ended, and no other client has it. A node that has it after that must be freed.
    pub(super) fn is_without_holder(&self) -> bool {
        let state = self.state();
        match state.given_up {
            Some(GivenUp::Released) => true,
            Some(GivenUp::Detached) => false,
            None => state.valid_until.has_passed(),
        }
    }

    /// Also for a release, which may have to be repeated. It is forgotten when that is answered.
    fn needs_connections(&self) -> bool {
        let state = self.state();
        state.given_up != Some(GivenUp::Detached) && !state.valid_until.has_passed()
    }

    fn is_past_its_deadline(&self) -> bool {
        self.state().valid_until.has_passed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }
}

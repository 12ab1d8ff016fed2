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
    exchange::{Command, Exchange},
    lease_tokens::LeaseTokens,
    votes::Event,
};
use crate::{backend::Ownership, clock::Moment};

/// How many leases there may be before those that ended without a release are forgotten.
const FEWEST_TO_FORGET: usize = 64;

/// The leases of this client, by their holders.
#[derive(Debug, Default)]
pub(super) struct Leases {
    leases: Mutex<ByHolder>,
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
    pub(super) exchange: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    /// The grants that differ from the grant of most nodes, by the nodes' addresses.
    grants: HashMap<String, Token>,
    tokens: LeaseTokens,
    /// Until when the lease is held; `None` once it was released.
    valid_until: Option<Moment>,
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
            valid_until: Some(valid_until),
        };
        let holder = ownership.holder.clone();
        let lease = Arc::new(Lease {
            ownership,
            state: Mutex::new(state),
            exchange: tokio::sync::Mutex::default(),
        });
        let mut all = self.lock();
        if all.leases.len() >= all.most.max(FEWEST_TO_FORGET) {
            all.leases.retain(|_, lease| !lease.has_ended());
            all.most = 2 * all.leases.len();
        }
        all.leases.insert(holder, lease.clone());
        lease
    }

    pub(super) fn get(&self, holder: &Holder) -> Option<Arc<Lease>> {
        self.lock().leases.get(holder).cloned()
    }

    /// Ends a lease, and returns it. From then on, it joins no node.
    pub(super) fn end(&self, holder: &Holder) -> Option<Arc<Lease>> {
        let lease = self.lock().leases.remove(holder)?;
        lease.state().valid_until = None;
        Some(lease)
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
    pub(super) fn count(&self, exchange: &mut Exchange, event: Event) -> Vec<Command> {
        exchange.on(&mut self.state().tokens, event)
    }

    pub(super) fn set_valid_until(&self, until: Moment) {
        if let Some(valid_until) = &mut self.state().valid_until {
            *valid_until = until;
        }
    }

    /// Whether it was released, or is past its deadline.
    pub(super) fn has_ended(&self) -> bool {
        self.state().valid_until.is_none_or(Moment::has_passed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }
}

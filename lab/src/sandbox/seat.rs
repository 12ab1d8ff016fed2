//! The place of a client in a sandbox.

use std::time::{Duration, Instant};

use fence::Token;
use testbed::Proxy;

use super::action::Deed;
use crate::{
    record::{Actor, Event, EventKind},
    scenario::stage::client::Client,
};

/// A client, its ways to the lock service, and what is known of its lease.
pub(super) struct Seat {
    pub(super) client: Client,
    pub(super) ways: Vec<Proxy>,
    pub(super) state: State,
    pub(super) is_cut_off: bool,
    /// Whether the client has a lease, as far as it knows.
    pub(super) has_lease: bool,
    /// Its lease, until that is over.
    pub(super) lease: Option<Lease>,
}

/// The state of a client's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Paused,
    Killed,
}

/// A lease that is not over.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) token: Option<Token>,
    /// The holder, as the client reports it.
    pub(super) holder: Option<String>,
    /// When it is over by the client's clock. In the lock service it lasts a little longer.
    pub(super) until: Instant,
    /// Whether the lock service has forgotten it.
    pub(super) is_forgotten: bool,
}

impl Seat {
    pub(super) fn new(client: Client, ways: Vec<Proxy>) -> Self {
        let (state, is_cut_off, has_lease) = (State::Running, false, false);
        Self { client, ways, state, is_cut_off, has_lease, lease: None }
    }

    pub(super) fn actor(&self) -> Actor {
        self.client.actor()
    }

    /// Why the client can't do something now, if so.
    pub(super) fn objection(&self, deed: Deed) -> Option<String> {
        let is_paused = self.state == State::Paused;
        let reason = match deed {
            Deed::Start => "has started already",
            Deed::Expire => return None,
            _ if self.state == State::Killed => "was killed",
            Deed::Resume if !is_paused => "is not paused",
            Deed::CutOff if self.is_cut_off => "is cut off already",
            Deed::Connect if !self.is_cut_off => "is not cut off",
            Deed::Resume | Deed::Kill | Deed::CutOff | Deed::Connect => return None,
            _ if is_paused => "is paused: resume it first",
            Deed::Acquire if self.has_lease => "has a lease: release the lock first",
            Deed::Read | Deed::Check | Deed::Write | Deed::Release if !self.has_lease => {
                "has no lease: acquire the lock first"
            }
            _ => return None,
        };
        Some(format!("{} {reason}", self.actor().title()))
    }

    /// Notes what an event of the client means for its lease.
    pub(super) fn note(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Acquired { remaining_ms, holder, .. } => {
                self.has_lease = true;
                self.lease = Some(Lease {
                    token: event.token,
                    holder: holder.clone(),
                    until: Instant::now() + Duration::from_millis(remaining_ms.unwrap_or(0)),
                    is_forgotten: false,
                });
            }
            EventKind::Released | EventKind::LeaseLost => {
                self.has_lease = false;
                self.lease = None;
            }
            // The lock service may have the lease still.
            EventKind::LeaseOver | EventKind::Unanswered => self.has_lease = false,
            _ => {}
        }
    }
}

//! The record of what the clients of a run observe.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use lock_client::{Lease, Lost};

use super::history::{Append, History, Issued, Span};

/// Records what the clients of a run observe.
#[derive(Debug)]
pub(super) struct Witness {
    began: Instant,
    history: RefCell<History>,
}

impl Witness {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), history: RefCell::default() }
    }

    /// Returns the time since the run began.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Records the token that a lease received, and when it was requested.
    pub(super) fn record_token(&self, lease: &Lease, requested: Duration) {
        // A lease that is lost by now has no token.
        if let Ok(token) = lease.token() {
            let holder = lease.holder().clone();
            let issued = Issued { holder, token, requested, received: self.now() };
            self.history.borrow_mut().issued.push(issued);
        }
    }

    /// Starts the record of how long a lease holds. Returns its number.
    pub(super) fn span(&self, lease: &Lease, over: Duration) -> usize {
        let (now, holder) = (self.now(), lease.holder().clone());
        let spans = &mut self.history.borrow_mut().spans;
        spans.push(Span { holder, from: now, until: now, over });
        spans.len() - 1
    }

    /// Checks whether a lease holds, and records it.
    pub(super) fn look(&self, lease: &Lease, span: usize) -> Result<(), Lost> {
        let now = self.now();
        lease.token()?;
        self.history.borrow_mut().spans[span].until = now;
        Ok(())
    }

    /// Records that an append is sent now. Returns its number.
    pub(super) fn append(&self) -> usize {
        let appends = &mut self.history.borrow_mut().appends;
        appends.push(Append { sent: self.now(), acknowledged: None });
        appends.len() - 1
    }

    pub(super) fn acknowledged(&self, append: usize) {
        self.history.borrow_mut().appends[append].acknowledged = Some(self.now());
    }

    /// Returns the history, with the value of the storage at the end.
    pub(super) fn into_history(self, value: Vec<usize>) -> History {
        History { value, ..self.history.into_inner() }
    }
}

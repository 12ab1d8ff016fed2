//! Who writes down what the clients of a run see.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use lock_client::{Lease, Lost};

use super::history::{Append, History, Span, Told};

/// Who writes down what the clients of a run see.
#[derive(Debug)]
pub(super) struct Witness {
    began: Instant,
    history: RefCell<History>,
}

impl Witness {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), history: RefCell::default() }
    }

    /// How long it is since the run began.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Notes the token that a lease has been told since a moment.
    pub(super) fn told(&self, lease: &Lease, asked: Duration) {
        // Of one that is lost by now, nobody hears.
        if let Ok(token) = lease.token() {
            let told = Told { holder: lease.holder().clone(), token, asked, at: self.now() };
            self.history.borrow_mut().told.push(told);
        }
    }

    /// Begins to note until when a lease holds. Answers by which number.
    pub(super) fn span(&self, lease: &Lease, over: Duration) -> usize {
        let (now, holder) = (self.now(), lease.holder().clone());
        let spans = &mut self.history.borrow_mut().spans;
        spans.push(Span { holder, from: now, until: now, over });
        spans.len() - 1
    }

    /// Looks whether a lease holds.
    pub(super) fn look(&self, lease: &Lease, span: usize) -> Result<(), Lost> {
        let now = self.now();
        lease.token()?;
        self.history.borrow_mut().spans[span].until = now;
        Ok(())
    }

    /// Notes that an append is sent now. Answers its number.
    pub(super) fn append(&self) -> usize {
        let appends = &mut self.history.borrow_mut().appends;
        appends.push(Append { sent: self.now(), acknowledged: None });
        appends.len() - 1
    }

    pub(super) fn acknowledged(&self, append: usize) {
        self.history.borrow_mut().appends[append].acknowledged = Some(self.now());
    }

    /// What was seen, and what the storage has in the end.
    pub(super) fn into_history(self, value: Vec<usize>) -> History {
        History { value, ..self.history.into_inner() }
    }
}

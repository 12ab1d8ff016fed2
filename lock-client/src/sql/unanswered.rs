//! Requests that were sent, and whose answer has not come yet.

use std::sync::{Arc, Mutex, MutexGuard};

use super::statements::Statements;

/// The unanswered requests of a connection, and of the connection that it replaced. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Unanswered {
    requests: Arc<Mutex<Vec<Entry>>>,
}

struct Entry {
    id: u64,
    key: Option<String>,
    /// What undoes the request, if its caller has given up and asked for that.
    undo: Option<Statements>,
}

/// One unanswered request. It ends when this value is dropped.
pub(crate) struct Request {
    all: Unanswered,
    id: u64,
}

impl Unanswered {
    /// Adds a request that is sent now.
    pub(crate) fn begin(&self, key: Option<&str>) -> Request {
        let id = fastrand::u64(..);
        self.entries().push(Entry { id, key: key.map(str::to_owned), undo: None });
        Request { all: self.clone(), id }
    }

    /// Has the unanswered requests with this key undone, once each is answered.
    pub(crate) fn undo_later(&self, key: &str, undo: &Statements) {
        for entry in self.entries().iter_mut().filter(|entry| entry.key.as_deref() == Some(key)) {
            entry.undo = Some(undo.clone());
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.requests.lock().expect("nothing panics while it holds this")
    }
}

impl Request {
    /// Returns what undoes the request, which was answered. Without any, the request ends: a later
    /// wish to undo it is a request of its own.
    pub(crate) fn undo_or_end(&mut self) -> Option<Statements> {
        let mut entries = self.all.entries();
        let position = entries.iter().position(|entry| entry.id == self.id)?;
        let undo = entries[position].undo.take();
        if undo.is_none() {
            entries.swap_remove(position);
        }
        undo
    }

    /// Puts back what failed to undo the request.
    pub(crate) fn undo_again(&mut self, undo: Statements) {
        let mut entries = self.all.entries();
        if let Some(entry) = entries.iter_mut().find(|entry| entry.id == self.id) {
            entry.undo.get_or_insert(undo);
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.all.entries().retain(|entry| entry.id != self.id);
    }
}

//! The requests of one connection, and their answers.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::record::Exchange;

/// How long a part of an exchange may be. A script may be longer.
const MOST_BYTES: usize = 2_000;
/// What stands for a secret.
pub(super) const SECRET: &str = "(not recorded)";

/// The requests of one connection, whose answers come in the same order.
#[derive(Debug)]
pub(super) struct Ledger {
    next: Arc<AtomicU64>,
    /// Requests without an answer. One that was taken without it leaves its place.
    open: VecDeque<Option<Noted>>,
    done: Vec<Noted>,
}

/// An exchange that was noted.
#[derive(Debug)]
pub(super) struct Noted {
    /// The number of its request, in the order of all connections.
    pub(super) number: u64,
    pub(super) exchange: Exchange,
    /// The script of Redis that it names, with its SHA-1.
    pub(super) script: Option<(String, String)>,
}

impl Ledger {
    /// A ledger of a connection. All connections take the numbers of their requests from the same place.
    pub(super) fn new(next: Arc<AtomicU64>) -> Self {
        Self { next, open: VecDeque::new(), done: Vec::new() }
    }

    /// Notes a request.
    pub(super) fn ask(&mut self, exchange: Exchange, script: Option<(String, String)>) {
        let number = self.next.fetch_add(1, Relaxed);
        self.open.push_back(Some(Noted { number, exchange, script }));
    }

    /// Notes the answer to the first request without one. An answer that nobody asked for is a
    /// notification, and is not noted.
    pub(super) fn answer(&mut self, answer: &str) {
        if let Some(Some(mut noted)) = self.open.pop_front() {
            *noted.exchange.answer_mut() = Some(shortened(answer));
            self.done.push(noted);
        }
    }

    /// Takes all requests that were not taken before.
    pub(super) fn take(&mut self) -> Vec<Noted> {
        let unanswered = self.open.iter_mut().filter_map(Option::take);
        self.done.drain(..).chain(unanswered).collect()
    }
}

/// A text, without what is too long.
pub(super) fn shortened(text: &str) -> String {
    if text.len() <= MOST_BYTES {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MOST_BYTES)])
}

/// Bytes as text.
pub(super) fn text(bytes: &[u8]) -> String {
    shortened(&String::from_utf8_lossy(bytes))
}

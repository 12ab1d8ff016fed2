//! What the server refused, counted by reason.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering},
};

/// Why the server refused something, apart from the fencing rule and malformed requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A connection on which no whole request came in time.
    Silent,
    /// A connection whose client did not read an answer in time.
    UnreadAnswer,
    /// An idle connection, closed for another one.
    Displaced,
    /// A request with too many headers, or too large ones.
    HeadTooLarge,
    /// A connection on which the client and the server did not agree on TLS.
    FailedHandshake,
    /// A connection that the system did not let the server accept.
    NotAccepted,
    /// A body that came too slowly.
    SlowBody,
    /// A body or an answer for which there was no room.
    NoRoom,
}

impl Refused {
    const ALL: [Self; 8] = [
        Self::Silent,
        Self::UnreadAnswer,
        Self::Displaced,
        Self::HeadTooLarge,
        Self::FailedHandshake,
        Self::NotAccepted,
        Self::SlowBody,
        Self::NoRoom,
    ];

    fn description(self) -> &'static str {
        match self {
            Self::Silent => "closed connections that sent no whole request",
            Self::UnreadAnswer => "closed connections that did not read their answers",
            Self::Displaced => "closed the longest idle connections, to accept others",
            Self::HeadTooLarge => "refused requests whose headers are too many or too large",
            Self::FailedHandshake => "closed connections whose TLS handshake failed",
            Self::NotAccepted => "could not accept connections: too many files are open",
            Self::SlowBody => "refused bodies that came too slowly",
            Self::NoRoom => "refused bodies and answers: too many bytes are in flight",
        }
    }
}

/// The numbers of refusals since they were last logged. An attack makes many of them, so they don't
/// get a line each.
#[derive(Debug)]
pub(crate) struct Refusals([AtomicU64; Refused::ALL.len()]);

impl Default for Refusals {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Refusals {
    pub(crate) fn count(&self, refused: Refused) {
        self.0[refused as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Logs a line for each reason that there was since the last call.
    pub(crate) fn log(&self) {
        for refused in Refused::ALL {
            let count = self.0[refused as usize].swap(0, Ordering::Relaxed);
            if count > 0 {
                tracing::warn!(count, "{}", refused.description());
            }
        }
    }
}

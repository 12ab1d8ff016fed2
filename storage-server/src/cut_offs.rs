//! Clients that the server cut off, counted by reason.

use std::{
    array,
    fmt::Display,
    net::IpAddr,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::metrics::counter::Counter;

/// Why a client was cut off: a connection, or one of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutOff {
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
    /// A connection whose client speaks plain HTTP where the server speaks https only.
    PlainHttp,
    /// A connection that the system did not let the server accept.
    NotAccepted,
    /// A body that came too slowly.
    SlowBody,
    /// A head, a body or an answer for which the memory budget had too little left.
    OverBudget,
    /// A read of a large value, or a list, whose client had no turn in time.
    NoTurn,
}

impl CutOff {
    pub(crate) const ALL: [Self; 10] = [
        Self::Silent,
        Self::UnreadAnswer,
        Self::Displaced,
        Self::HeadTooLarge,
        Self::FailedHandshake,
        Self::PlainHttp,
        Self::NotAccepted,
        Self::SlowBody,
        Self::OverBudget,
        Self::NoTurn,
    ];

    /// Its name in the metrics.
    pub(crate) fn slug(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::UnreadAnswer => "unread-answer",
            Self::Displaced => "displaced",
            Self::HeadTooLarge => "head-too-large",
            Self::FailedHandshake => "failed-handshake",
            Self::PlainHttp => "plain-http",
            Self::NotAccepted => "not-accepted",
            Self::SlowBody => "slow-body",
            Self::OverBudget => "over-budget",
            Self::NoTurn => "no-turn",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Silent => "closed connections that sent no whole request",
            Self::UnreadAnswer => "closed connections that did not read their answers",
            Self::Displaced => "closed idle connections, to accept others",
            Self::HeadTooLarge => "rejected requests whose headers are too many or too large",
            Self::FailedHandshake => "closed connections whose TLS handshake failed",
            Self::PlainHttp => {
                "closed connections that spoke plain HTTP where only https is spoken"
            }
            Self::NotAccepted => "could not accept connections: too many files are open",
            Self::SlowBody => "rejected bodies that came too slowly",
            Self::OverBudget => "rejected bodies and answers: too many bytes are in flight",
            Self::NoTurn => {
                "rejected reads of large values, and lists: those of others took too long"
            }
        }
    }
}

/// The numbers of cut-offs. An attack makes many of them, so they don't get a line each.
#[derive(Debug)]
pub(crate) struct CutOffs {
    counts: [Counter; CutOff::ALL.len()],
    /// How many of them the log has.
    logged: [AtomicU64; CutOff::ALL.len()],
    /// The last client whose certificate was rejected, and why, until the log has it.
    rejected_certificate: Mutex<Option<(IpAddr, String)>>,
}

impl CutOffs {
    /// Counts each reason with its own counter.
    pub(crate) fn new(counter: impl Fn(CutOff) -> Counter) -> Self {
        Self {
            counts: CutOff::ALL.map(counter),
            logged: array::from_fn(|_| AtomicU64::new(0)),
            rejected_certificate: Mutex::default(),
        }
    }

    pub(crate) fn count(&self, cut_off: CutOff) {
        self.counts[cut_off as usize].inc();
    }

    /// Notes a client whose certificate was rejected. The log has the last one of them.
    pub(crate) fn note_rejected_certificate(&self, client: IpAddr, reason: impl Display) {
        let mut rejected = self.rejected_certificate.lock().expect("no panic while it is held");
        *rejected = Some((client, reason.to_string()));
    }

    /// Logs a line for each reason that there was since the last call.
    pub(crate) fn log(&self) {
        // Handshakes wait for this mutex, and must not wait for the log.
        let rejected = self.rejected_certificate.lock().expect("no panic while it is held").take();
        if let Some((client, reason)) = rejected {
            tracing::warn!(%client, "rejected the certificate of a client: {reason}");
        }
        for cut_off in CutOff::ALL {
            let total = self.counts[cut_off as usize].get();
            let count = total - self.logged[cut_off as usize].swap(total, Ordering::Relaxed);
            if count > 0 {
                tracing::warn!(count, "{}", cut_off.description());
            }
        }
    }
}

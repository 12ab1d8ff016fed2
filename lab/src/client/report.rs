//! How a client reports what it did.

use fence::{Rejection, Token};
use serde::{Deserialize, Serialize};

use super::{tally::Tally, tap::Taps};
use crate::record::{EventKind, Wire};

/// An event as a client prints it: a JSON line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The token that the event concerns, if any.
    pub(crate) token: Option<Token>,
    #[serde(flatten)]
    pub(crate) kind: EventKind,
    /// What went over the wire since the report before.
    #[serde(default, skip_serializing_if = "Wire::is_empty")]
    pub(crate) wire: Wire,
}

/// Where a client's reports go.
#[derive(Debug)]
pub(crate) enum Reports {
    /// To stdout, with what went over the wire.
    Printed(Taps),
    /// Into the sum of a crowd.
    Counted(Tally),
}

impl Report {
    pub(crate) fn print(&self) {
        println!("{}", serde_json::to_string(self).expect("a report is plain JSON"));
    }
}

impl Reports {
    pub(crate) fn add(&mut self, report: impl Into<Report>) {
        let report = report.into();
        match self {
            Self::Printed(taps) => Report { wire: taps.take(), ..report }.print(),
            Self::Counted(tally) => tally.add(&report.kind),
        }
    }
}

/// An event that concerns no token.
impl From<EventKind> for Report {
    fn from(kind: EventKind) -> Self {
        Self { token: None, kind, wire: Wire::default() }
    }
}

/// An event that may concern a token.
impl<T: Into<Option<Token>>> From<(T, EventKind)> for Report {
    fn from((token, kind): (T, EventKind)) -> Self {
        Self { token: token.into(), kind, wire: Wire::default() }
    }
}

/// A request that the storage rejected.
impl From<Rejection> for Report {
    fn from(rejection: Rejection) -> Self {
        (rejection.token, EventKind::Rejected(rejection.into())).into()
    }
}

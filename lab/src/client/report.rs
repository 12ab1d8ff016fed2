//! How a client reports what it did.

use fence::{Refusal, Token};
use serde::{Deserialize, Serialize};

use super::tally::Tally;
use crate::record::EventKind;

/// An event as a client prints it: a JSON line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The token that the event concerns, if any.
    pub(crate) token: Option<Token>,
    #[serde(flatten)]
    pub(crate) kind: EventKind,
}

/// Where a client's reports go.
#[derive(Debug)]
pub(crate) enum Reports {
    /// To stdout.
    Printed,
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
            Self::Printed => report.print(),
            Self::Counted(tally) => tally.add(&report.kind),
        }
    }
}

/// An event that concerns no token.
impl From<EventKind> for Report {
    fn from(kind: EventKind) -> Self {
        Self { token: None, kind }
    }
}

/// An event that may concern a token.
impl<T: Into<Option<Token>>> From<(T, EventKind)> for Report {
    fn from((token, kind): (T, EventKind)) -> Self {
        Self { token: token.into(), kind }
    }
}

/// A request that the storage rejected.
impl From<Refusal> for Report {
    fn from(refusal: Refusal) -> Self {
        (refusal.token, EventKind::Refused(refusal.into())).into()
    }
}

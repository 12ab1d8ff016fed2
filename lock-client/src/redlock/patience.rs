//! How long a client waits for nodes. All times grow with the time for one vote.

use std::time::Duration;

use crate::redis::TimeLimits;

/// The kind of a request to a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// A vote. It is useful only if it arrives soon.
    Vote,
    /// The release of a lock that the node has granted, or may still grant. It is useful however
    /// late it arrives.
    Release,
}

/// How long a client waits for nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience(pub(super) TimeLimits);

impl Patience {
    /// How long all nodes together have for their answers to a request. A round that has to seal
    /// needs two round trips.
    pub(super) fn answers(self, request: Request) -> Duration {
        match request {
            Request::Vote => self.0.answer,
            Request::Release => self.0.answer * 4,
        }
    }

    /// How long the first request waits for the slowest node to connect.
    pub(super) fn first_connection(self) -> Duration {
        self.0.answer / 5
    }

    /// How long it may take to connect to a node, or to read its record.
    pub(super) fn connecting(self) -> Duration {
        self.0.answer * 2
    }

    /// How long a search for the members may take: the servers that the client knows are asked, and
    /// then those that they name.
    pub(super) fn searching(self) -> Duration {
        self.connecting() * 2
    }

    /// How long a node may answer nothing before it is asked less often. Requests to a node that
    /// hangs pile up, and are carried out late.
    pub(super) fn silence(self) -> Duration {
        self.0.answer * 2 / 5
    }

    /// How often a node that does not answer is still asked for its vote.
    pub(super) fn probe_interval(self) -> Duration {
        self.0.answer / 5
    }
}

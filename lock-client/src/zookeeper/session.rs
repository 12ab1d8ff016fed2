//! A session of ZooKeeper.

use std::fmt;

use super::failure::Failure;

/// A session: its id and password, with which any connection goes on with it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) id: i64,
    pub(super) password: Vec<u8>,
    /// The session expires when it has had no connection for so long. It never changes.
    pub(super) timeout_ms: u64,
}

/// How a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By a request that was confirmed.
    Closed,
    /// Earlier, as a member reports that may be wrong.
    Expired,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("timeout_ms", &self.timeout_ms)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Writes what a node of the session records: the time-out, and the password. The node itself has
    /// the id.
    pub(super) fn record(&self) -> String {
        let password = self.password.iter().map(|byte| format!("{byte:02x}"));
        format!("{} {}", self.timeout_ms, password.collect::<String>())
    }

    /// Parses what a node records.
    pub(super) fn parse(id: i64, record: &str) -> Result<Self, Failure> {
        let parsed = record.split_once(' ').and_then(|(timeout_ms, password)| {
            let password: Option<Vec<_>> = password
                .as_bytes()
                .chunks(2)
                .map(|byte| u8::from_str_radix(str::from_utf8(byte).ok()?, 16).ok())
                .collect();
            Some(Self { id, password: password?, timeout_ms: timeout_ms.parse().ok()? })
        });
        parsed.ok_or_else(Failure::foreign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_is_parsed_as_it_was_recorded() {
        let session = Session { id: 7, password: vec![0, 0x5a, 0xff], timeout_ms: 30_000 };
        assert_eq!(session.record(), "30000 005aff");
        assert_eq!(Session::parse(7, &session.record()).unwrap(), session);
        assert!(!format!("{session:?}").contains("90"), "the password is no part of it");
        for foreign in ["", "30000", "x 00", "30000 0g", "30000 ł"] {
            assert!(Session::parse(7, foreign).is_err(), "{foreign}");
        }
    }
}

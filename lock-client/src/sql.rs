//! What the lock services in SQL databases share.

use std::{error::Error, fmt, time::Duration};

pub(crate) mod answer;
mod lane;
pub(crate) mod lanes;
pub(crate) mod names;
pub(crate) mod polling;
mod unanswered;

/// The URL of a database can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidDatabaseUrl(pub(crate) String);

impl fmt::Display for InvalidDatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the URL of the database can't be used: {}", self.0)
    }
}

impl Error for InvalidDatabaseUrl {}

/// Returns the bytes of a text in hexadecimal digits, which need no escaping in SQL.
pub(crate) fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a label without control characters, of 200 characters at most.
pub(crate) fn printable(label: &str) -> String {
    let printable = |character: char| if character.is_control() { ' ' } else { character };
    label.chars().take(200).map(printable).collect()
}

/// The limits between which an answer is waited for.
pub(crate) fn answer_timeout(timeout: Duration) -> Duration {
    timeout.clamp(Duration::from_millis(1), Duration::from_secs(3600))
}

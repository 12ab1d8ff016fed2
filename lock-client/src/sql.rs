//! What the lock services in SQL databases share.

use std::{error::Error, fmt, time::Duration};

pub(crate) mod answer;
pub(crate) mod backend;
#[cfg(feature = "tls")]
pub(crate) mod certificates;
pub(crate) mod line;
mod names;
pub(crate) mod pool;
pub(crate) mod url;
pub(crate) mod waiters;

/// The URL of a database can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidDatabaseUrl {
    reason: String,
    example: &'static str,
}

impl InvalidDatabaseUrl {
    /// A URL that is not used for this reason. The example is one of the same database.
    pub(crate) fn new(reason: &str, example: &'static str) -> Self {
        Self { reason: reason.to_owned(), example }
    }

    /// A URL that the driver can't parse.
    pub(crate) fn unparsable(url: &str, error: &impl fmt::Display, example: &'static str) -> Self {
        // Such a character ends the host, and so the password is taken for a port.
        let user_and_more = url.split_once("://").map_or("", |(_, rest)| rest);
        let rest = user_and_more.split_once(['/', '?', '#']).map_or("", |(_, rest)| rest);
        if rest.contains('@') {
            let reason =
                "write %2F for a /, %3F for a ? and %23 for a # in the user or the password";
            return Self::new(reason, example);
        }
        Self::new(&error.to_string(), example)
    }
}

impl fmt::Display for InvalidDatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, example } = self;
        write!(f, "the URL of the database can't be used: {reason}; a URL looks like {example}")
    }
}

impl Error for InvalidDatabaseUrl {}

/// Returns the bytes of a text in hexadecimal digits, which need no escaping in SQL.
pub(crate) fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// The limits between which an answer is waited for.
pub(crate) fn answer_timeout(timeout: Duration) -> Duration {
    timeout.clamp(Duration::from_millis(1), Duration::from_secs(3600))
}

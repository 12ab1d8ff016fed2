//! What the lock services in SQL databases share.

pub(crate) mod answer;
pub(crate) mod backend;
#[cfg(feature = "tls")]
pub(crate) mod certificates;
pub(crate) mod line;
mod names;
pub(crate) mod polling;
pub(crate) mod pool;
mod release;
mod tries;
pub(crate) mod url;

use crate::service_url::InvalidUrl;

/// What the URL is in the error about one that can't be used.
pub(crate) const UNUSABLE: &str = "the URL of the database can't be used";

/// The error about a URL that the driver can't parse.
pub(crate) fn unparsable(url: &str, error: &impl ToString) -> InvalidUrl {
    // Such a character ends the host, and so the password is taken for a port.
    let user_and_more = url.split_once("://").map_or("", |(_, rest)| rest);
    let rest = user_and_more.split_once(['/', '?', '#']).map_or("", |(_, rest)| rest);
    InvalidUrl::new(match rest.contains('@') {
        true => {
            "write %2F for a /, %3F for a ? and %23 for a # in the user or the password".to_owned()
        }
        false => error.to_string(),
    })
}

/// Returns the bytes of a text in hexadecimal digits, which need no escaping in SQL.
pub(crate) fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

//! An error's text with its causes.

use std::error::Error;

/// The error's message, followed by its causes, each printed once.
///
/// Some errors, such as sqlx's, repeat their cause in their own message. Such a cause is left out.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::store::error::Unreachable;

    #[test]
    fn each_cause_is_printed_once() {
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
        let error = Unreachable::from(sqlx::Error::Io(refused));
        assert_eq!(
            with_causes(&error),
            "the database can't be reached: error communicating with database: connection refused"
        );
    }
}

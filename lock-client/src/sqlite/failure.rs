//! What an error of SQLite means for a caller.

use crate::backend::BackendError;

/// Converts an error, and names the file.
pub(super) fn failed(address: &str, error: &sqlx::Error) -> BackendError {
    let (code, message) = match error.as_database_error() {
        Some(error) => (error.code().unwrap_or_default(), error.message()),
        None => Default::default(),
    };
    // The lower byte is the kind, and the others make it more precise.
    match code.parse::<u32>().map(|code| code & 0xff) {
        Ok(1) if message.starts_with("no such table") => {
            let hint = "the tables of the locks are missing: apply migrations/sqlite/lock";
            rejected(address, &format!("{hint} ({error})"))
        }
        Ok(14) => {
            let hint = "the file can't be opened; to make one, apply migrations/sqlite/lock";
            rejected(address, &format!("{hint} ({error})"))
        }
        // It is read-only, or is no database; or a token would be above the highest.
        Ok(8 | 19 | 26) => rejected(address, &error.to_string()),
        Ok(5 | 6) => BackendError::Unavailable(
            format!("{address}: another process keeps the file locked ({error})").into(),
        ),
        // All else may pass, or leaves the outcome unknown.
        _ => BackendError::Unavailable(format!("{address}: {error}").into()),
    }
}

fn rejected(address: &str, reason: &str) -> BackendError {
    BackendError::Rejected(format!("{address}: {reason}").into())
}

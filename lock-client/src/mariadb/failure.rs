//! What an error of MariaDB means for a caller.

use sqlx::mysql::MySqlDatabaseError;

use crate::backend::BackendError;

/// Converts an error, and names the server.
pub(super) fn failed(address: &str, error: &sqlx::Error) -> BackendError {
    if let sqlx::Error::Tls(reason) = error {
        return rejected(address, &format!("the encrypted connection failed: {reason}"));
    }
    let number = error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>())
        .map(MySqlDatabaseError::number);
    match number {
        // A table or a procedure does not exist.
        Some(1146 | 1305) => {
            let hint = "the tables of the locks are missing: apply migrations/mariadb/lock";
            rejected(address, &format!("{hint} ({error})"))
        }
        // A wrong user or password, no right, or no such database; a wrong argument; a token above the
        // highest.
        Some(1044 | 1045 | 1046 | 1049 | 1142 | 1370 | 1644 | 1698 | 4025) => {
            rejected(address, &error.to_string())
        }
        // The server, or the session by default, is read-only. A failover looks the same, so it may pass.
        Some(1290 | 1792 | 1836) => BackendError::Unavailable(
            format!(
                "{address}: it takes no writes: it is read-only, as a replica is; name the primary, or \
                 set global read_only = 0 ({error})"
            )
            .into(),
        ),
        Some(1665) => BackendError::Unavailable(
            format!(
                "{address}: its binary log takes no writes at the level READ COMMITTED: set global \
                 binlog_format = 'MIXED', or 'ROW' ({error})"
            )
            .into(),
        ),
        // All else may pass, or leaves the outcome unknown.
        _ => BackendError::Unavailable(format!("{address}: {error}").into()),
    }
}

fn rejected(address: &str, reason: &str) -> BackendError {
    BackendError::Rejected(format!("{address}: {reason}").into())
}

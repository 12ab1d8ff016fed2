//! What an error of PostgreSQL means for a caller.

use crate::backend::BackendError;

/// Converts an error, and names the server.
pub(super) fn failed(address: &str, error: &sqlx::Error) -> BackendError {
    if let sqlx::Error::Tls(reason) = error {
        return rejected(address, &format!("the encrypted connection failed: {reason}"));
    }
    let database_error = error.as_database_error();
    let code = database_error.and_then(|error| error.code()).unwrap_or_default();
    // `Display` adds the line in PostgreSQL's own source.
    let error =
        database_error.map_or_else(|| error.to_string(), |error| error.message().to_owned());
    match &*code {
        // The schema, a table or a function does not exist.
        "3F000" | "42P01" | "42883" => BackendError::Rejected(
            format!(
                "{address}: the schema fenced_lock is missing or too old: apply \
                 migrations/postgres/lock ({error})"
            )
            .into(),
        ),
        "42501" => BackendError::Rejected(
            format!("{address}: {error}; clients need `grant usage on schema fenced_lock to …`")
                .into(),
        ),
        // A wrong user or password, or no such database; a token above the highest; a character that
        // the database's encoding does not have; a wrong argument.
        "28000" | "28P01" | "3D000" | "23514" | "22P05" | "22023" => rejected(address, &error),
        // A standby, or default_transaction_read_only. A failover looks the same, so it may pass. A standby
        // has no unlogged table, either.
        "25006" | "0A000" => BackendError::Unavailable(
            format!(
                "{address}: it takes no writes: it is a standby, or its sessions are read-only by \
                 default; name the primary, or set default_transaction_read_only = off ({error})"
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

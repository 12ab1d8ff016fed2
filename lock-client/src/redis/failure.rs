//! What an error of Redis means for a caller.

use std::fmt::Display;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::server::Server;
use crate::backend::BackendError;

/// Converts an error, and names the server. The error is not kept as a source, because the `redis`
/// crate's text already has its own cause in it.
pub(super) fn failed(server: &Server, error: &RedisError) -> BackendError {
    if is_passing(error) {
        BackendError::Unavailable(format!("{server}: {error}").into())
    } else {
        rejected(server, error)
    }
}

/// Reports that the server rejected, or that its answer or data are not usable.
pub(super) fn rejected(server: &Server, reason: &impl Display) -> BackendError {
    BackendError::Rejected(format!("{server}: {reason}").into())
}

/// Whether the request may have been carried out, or may succeed if it is repeated.
pub(crate) fn is_passing(error: &RedisError) -> bool {
    let passing = matches!(
        error.kind(),
        ErrorKind::Io
            // If an answer can't be parsed, the request was carried out before.
            | ErrorKind::Parse
            | ErrorKind::UnexpectedReturnType
            | ErrorKind::ClusterConnectionNotFound
            | ErrorKind::MasterNameNotFoundBySentinel
            | ErrorKind::NoValidReplicasFoundBySentinel
            | ErrorKind::Server(
                ServerErrorKind::BusyLoading
                    | ServerErrorKind::ClusterDown
                    | ServerErrorKind::MasterDown
                    | ServerErrorKind::ReadOnly
                    | ServerErrorKind::TryAgain
                    | ServerErrorKind::Moved
                    | ServerErrorKind::Ask
            )
    );
    passing || matches!(error.code(), Some("BUSY" | "MISCONF" | "NOREPLICAS" | "OOM"))
}

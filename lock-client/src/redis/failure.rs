//! What an error of Redis means for a caller.

use std::fmt::Display;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::server::Server;
use crate::backend::BackendError;

/// An error of a Redis server, or of the connection to it.
#[derive(Debug, thiserror::Error)]
#[error("{server}: {reason}")]
struct ServerError {
    server: String,
    /// The text of the error. It is not a source: the `redis` crate's text has its own cause in it.
    reason: String,
}

impl ServerError {
    fn new(server: &Server, reason: &impl Display) -> Box<Self> {
        Box::new(Self { server: server.to_string(), reason: reason.to_string() })
    }
}

/// Converts an error, and names the server.
pub(super) fn failed(server: &Server, error: &RedisError) -> BackendError {
    let error_of_server = ServerError::new(server, error);
    if is_passing(error) {
        BackendError::Unavailable(error_of_server)
    } else {
        BackendError::Rejected(error_of_server)
    }
}

/// Reports that the server's answer or data are not usable.
pub(super) fn rejected(server: &Server, reason: &impl Display) -> BackendError {
    BackendError::Rejected(ServerError::new(server, reason))
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
    passing || matches!(error.code(), Some("BUSY" | "MISCONF" | "NOREPLICAS"))
}

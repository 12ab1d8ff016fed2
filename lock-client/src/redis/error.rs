//! What an error of the crate `redis` means.

use redis::{ErrorKind, RedisError, ServerErrorKind};

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

/// The text of an error, without the name of its kind, which the crate puts into it.
pub(super) fn reason(error: &RedisError) -> String {
    error.to_string().replace(&format!(" - {:?}", error.kind()), "")
}

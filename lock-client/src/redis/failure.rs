//! What an error of the crate `redis` means.

use std::fmt::Display;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::server::Server;
use crate::backend::BackendError;

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

/// Converts an error, and names the server. The error is not kept as a source, because the `redis`
/// crate's text already has its own cause in it.
pub(super) fn failed(server: &Server, error: &RedisError) -> BackendError {
    if is_passing(error) {
        BackendError::Unavailable(passing(server, error).into())
    } else {
        rejected(server, &reason(error))
    }
}

/// Says why a request may succeed if it is repeated. An answer of the server is not called silence.
fn passing(server: &Server, error: &RedisError) -> String {
    let explained = match error.code() {
        Some("READONLY") => {
            "it is a replica, which takes no writes: name the primary, or Sentinels that know it"
        }
        Some("NOREPLICAS") => {
            "it takes no writes, because fewer replicas are connected than min-replicas-to-write"
        }
        Some("TRYAGAIN") => {
            "the lock's slot moves to another node, and until then scripts are not run"
        }
        None if error.kind() == ErrorKind::Io => {
            return format!("no answer from {}: {error}", server.url());
        }
        _ => return format!("{server}: {}", reason(error)),
    };
    let code = error.code().unwrap_or_default();
    format!("{server}: {explained} ({code} {})", error.detail().unwrap_or_default())
}

/// Reports that the server rejected, or that its answer or data are not usable.
pub(super) fn rejected(server: &Server, reason: &impl Display) -> BackendError {
    BackendError::Rejected(format!("{server}: {reason}").into())
}

/// Whether an error's text says that the user lacks a permission. Redis's words depend on its version, and
/// on whether a script called the command.
pub fn lacks_permission(problem: &str) -> bool {
    ["NOPERM", "NoPerm", "no permissions", "The user executing the script", "ACL failure"]
        .iter()
        .any(|words| problem.contains(words))
}

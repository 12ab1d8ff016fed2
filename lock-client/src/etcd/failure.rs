//! Why a request to etcd failed, and what that means for a caller.

use std::{error::Error, io};

use hyper::StatusCode;
use serde_json::Value;

use super::server::Member;
use crate::{
    backend::BackendError,
    causes::{causes, has_cause, innermost},
};

#[derive(Debug)]
pub(super) enum Failure {
    /// The lease does not exist. Nothing was changed.
    NoLease,
    /// The token of the login is not valid (any more). Nothing was changed.
    LoggedOut(String),
    /// The member was not reached, has no leader, or is a learner. Nothing was changed.
    NotSent(BackendError),
    /// etcd stores nothing more. It may have carried out the request that it noticed this by, but
    /// does nothing later.
    NoSpace(BackendError),
    Other(BackendError),
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoLease => Self::Unavailable("the lease has ended".into()),
            Failure::LoggedOut(reason) => Self::Rejected(reason.into()),
            Failure::NotSent(error) | Failure::NoSpace(error) | Failure::Other(error) => error,
        }
    }
}

/// The status codes of gRPC that need a decision.
const INVALID_ARGUMENT: u64 = 3;
const NOT_FOUND: u64 = 5;
const PERMISSION_DENIED: u64 = 7;
const RESOURCE_EXHAUSTED: u64 = 8;
const FAILED_PRECONDITION: u64 = 9;
const UNIMPLEMENTED: u64 = 12;
const UNAUTHENTICATED: u64 = 16;

impl Failure {
    /// Whether etcd may still carry out the request later.
    pub(super) fn leaves_it_under_way(&self) -> bool {
        matches!(self, Self::Other(BackendError::Unavailable(_)))
    }

    /// Reports that there was no answer, or no whole one.
    pub(super) fn unavailable(member: &Member, reason: &str) -> Self {
        Self::Other(BackendError::Unavailable(format!("{member}: {reason}").into()))
    }

    /// Converts an error while a connection was made. Nothing was sent.
    pub(super) fn not_connected(member: &Member, error: &(dyn Error + 'static)) -> Self {
        let reason = innermost(error);
        if has_cause::<rustls::Error>(error) {
            let reason = format!("{member}: the encrypted connection failed: {reason}");
            return Self::NotSent(BackendError::Rejected(reason.into()));
        }
        // A server that is down takes no connection.
        let mut causes = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
        let is_down = causes.any(|cause| cause.kind() == io::ErrorKind::ConnectionRefused);
        let hint = match member.is_encrypted() && !is_down {
            true => " (does this port take TLS?)",
            false => "",
        };
        Self::NotSent(BackendError::Unavailable(format!("{member}: {reason}{hint}").into()))
    }

    /// Converts an error on a connection. The request may have been carried out.
    pub(super) fn not_answered(member: &Member, error: &(dyn Error + 'static)) -> Self {
        let reason = innermost(error);
        let reason = match (has_cause::<rustls::Error>(error), member.is_encrypted()) {
            (true, _) => format!("the encrypted connection failed: {reason}"),
            (false, true) => reason.to_string(),
            (false, false) => format!("{reason} (does this port take TLS only?)"),
        };
        Self::unavailable(member, &reason)
    }

    pub(super) fn from_answer(member: &Member, status: StatusCode, body: &[u8]) -> Self {
        let Some((code, message)) = grpc_status(body) else {
            let reason =
                format!("{member}: HTTP {status}, which is no answer of etcd 3.4 or newer");
            // A proxy before etcd answers so if etcd is down or slow. It may have sent the request
            // on.
            let is_of_a_proxy =
                status.is_server_error() || matches!(status.as_u16(), 408 | 429 | 499);
            return Self::Other(match is_of_a_proxy {
                true => BackendError::Unavailable(reason.into()),
                false => BackendError::Rejected(reason.into()),
            });
        };
        let reason = format!("{member}: {message}");
        // A learner answers only reads of its own data, whatever the code.
        if message.contains("not supported for learner") {
            return Self::NotSent(BackendError::Unavailable(reason.into()));
        }
        match code {
            NOT_FOUND if message.contains("lease") => Self::NoLease,
            UNAUTHENTICATED => Self::LoggedOut(reason),
            INVALID_ARGUMENT if message.contains("revision of auth store is old") => {
                Self::LoggedOut(reason)
            }
            INVALID_ARGUMENT | NOT_FOUND | PERMISSION_DENIED | FAILED_PRECONDITION
            | UNIMPLEMENTED => Self::Other(BackendError::Rejected(reason.into())),
            RESOURCE_EXHAUSTED if message.contains("database space exceeded") => {
                Self::NoSpace(BackendError::Unavailable(reason.into()))
            }
            // The member rejects before it does anything.
            _ if message.contains("no leader") => {
                Self::NotSent(BackendError::Unavailable(reason.into()))
            }
            _ => Self::Other(BackendError::Unavailable(reason.into())),
        }
    }
}

/// Finds the code and the message of an error. The gateways of etcd's versions place them
/// differently.
fn grpc_status(body: &[u8]) -> Option<(u64, String)> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let error = answer.get("error").filter(|error| error.is_object()).unwrap_or(&answer);
    let code = error.get("grpc_code").or_else(|| error.get("code"))?.as_u64()?;
    Some((code, error.get("message")?.as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::server::Server;

    #[test]
    fn errors_of_all_versions_are_understood() {
        let member = &Server::open("etcd://n1").ok().unwrap().members[0];
        let failure = |body: &str| {
            Failure::from_answer(member, StatusCode::SERVICE_UNAVAILABLE, body.as_bytes())
        };
        // 3.4 and 3.5, 3.6, and the streams of both.
        for no_leader in [
            r#"{"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14}"#,
            r#"{"code":14,"message":"etcdserver: no leader","details":[]}"#,
            r#"{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}"#,
            r#"{"error":{"code":14,"message":"etcdserver: no leader","details":[]}}"#,
        ] {
            let Failure::NotSent(BackendError::Unavailable(reason)) = failure(no_leader) else {
                panic!("{no_leader}");
            };
            assert_eq!(reason.to_string(), "n1:2379: etcdserver: no leader");
        }
        // 3.4, and newer ones.
        for code in [14, 9] {
            let learner = failure(&format!(
                r#"{{"code":{code},"message":"etcdserver: rpc not supported for learner"}}"#
            ));
            let Failure::NotSent(BackendError::Unavailable(_)) = learner else {
                panic!("{learner:?}");
            };
        }
        let timed_out = failure(r#"{"code":14,"message":"etcdserver: request timed out"}"#);
        assert!(matches!(timed_out, Failure::Other(BackendError::Unavailable(_))));
        assert!(timed_out.leaves_it_under_way());
        let exceeded = "etcdserver: mvcc: database space exceeded";
        let no_space = failure(&format!(r#"{{"code":8,"message":"{exceeded}"}}"#));
        assert!(matches!(no_space, Failure::NoSpace(BackendError::Unavailable(_))));
        assert!(!no_space.leaves_it_under_way());
        let denied = failure(r#"{"code":7,"message":"etcdserver: permission denied"}"#);
        assert!(matches!(denied, Failure::Other(BackendError::Rejected(_))));
        assert!(!denied.leaves_it_under_way());
        for of_a_proxy in [StatusCode::BAD_GATEWAY, StatusCode::TOO_MANY_REQUESTS] {
            let answer = Failure::from_answer(member, of_a_proxy, b"<html>");
            assert!(answer.leaves_it_under_way(), "{answer:?}");
        }
        let elsewhere = Failure::from_answer(member, StatusCode::NOT_FOUND, b"Not Found");
        assert!(matches!(elsewhere, Failure::Other(BackendError::Rejected(_))));
    }
}

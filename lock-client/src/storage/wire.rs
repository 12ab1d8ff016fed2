//! Requests to the storage server and its responses.

use std::time::Duration;

use bytes::Bytes;
use fence::{Fence, Rejection, RejectionReason, ResourceName, Token};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body;
use reqwest::{RequestBuilder, StatusCode, header::HeaderMap};
#[cfg(feature = "storage-tls")]
use rustls::AlertDescription;
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    answer::{Answer, Value},
    error::{StorageError, StorageRequestError},
    server_url::ServerUrl,
};
#[cfg(feature = "storage-tls")]
use crate::causes::has_cause;
use crate::causes::{causes, innermost};

/// It is longer than the server itself waits for its database.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest value of any storage server.
const MAX_BODY_BYTES: usize = 256 << 20;

struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// A request, and where it goes: errors name both the server and the resource.
pub(super) struct Request<'a> {
    pub(super) origin: Origin<'a>,
    pub(super) http: RequestBuilder,
}

/// The server and the resource that a response comes from.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) server: &'a ServerUrl,
    pub(super) resource: &'a ResourceName,
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

impl Origin<'_> {
    fn error(self, cause: impl Into<Cause>) -> StorageRequestError {
        StorageRequestError::new(self.server, self.resource, cause)
    }

    fn unavailable(self, cause: impl Into<Cause>) -> StorageError {
        StorageError::Unavailable(self.error(cause))
    }

    fn unknown(self, cause: impl Into<Cause>) -> StorageError {
        StorageError::Unknown(self.error(cause))
    }

    fn rejected(self, cause: impl Into<Cause>) -> StorageError {
        StorageError::Rejected(self.error(cause))
    }

    fn no_storage_server(self, reason: &str) -> StorageError {
        self.rejected(format!("this is no storage server: {reason}"))
    }

    fn unanswered(self, error: &reqwest::Error) -> StorageError {
        let reason = innermost(error);
        #[cfg(feature = "storage-tls")]
        if rejects_the_certificate(error) || error.is_connect() && has_cause::<rustls::Error>(error)
        {
            return self.rejected(format!("the encrypted connection failed: {reason}"));
        }
        if error.is_builder() {
            self.rejected(reason.to_string())
        } else if error.is_connect() {
            self.unavailable(reason.to_string())
        } else {
            let is_garbled = causes(error).any(|cause| {
                cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse)
            });
            self.unknown(format!("{reason}{}", self.hint(is_garbled)))
        }
    }

    /// What may be wrong if an answer looks as that of a port that takes https only.
    fn hint(&self, looks_so: bool) -> &'static str {
        match looks_so && !self.server.is_encrypted() {
            true => " (does this port take https only?)",
            false => "",
        }
    }
}

/// Whether the server has rejected the client's certificate, or asks for one. It may do so after the
/// client has sent a request, which it does not read.
#[cfg(feature = "storage-tls")]
fn rejects_the_certificate(error: &reqwest::Error) -> bool {
    causes(error).filter_map(|cause| cause.downcast_ref::<rustls::Error>()).any(|error| {
        matches!(
            error,
            rustls::Error::AlertReceived(
                AlertDescription::AccessDenied
                    | AlertDescription::BadCertificate
                    | AlertDescription::CertificateExpired
                    | AlertDescription::CertificateRequired
                    | AlertDescription::CertificateRevoked
                    | AlertDescription::CertificateUnknown
                    | AlertDescription::DecryptError
                    | AlertDescription::UnknownCA
                    | AlertDescription::UnsupportedCertificate
            )
        )
    })
}

impl<'a> Request<'a> {
    pub(super) fn fenced(self, fence: &Fence) -> Self {
        let http = self.http.header("Fencing-Token", fence.token.as_u64());
        let http = if fence.holder.is_empty() {
            http
        } else {
            http.header("Fencing-Holder", fence.holder.as_str())
        };
        Self { http, ..self }
    }

    pub(super) fn numbered(self, number: Option<u64>) -> Self {
        match number {
            Some(number) => Self { http: self.http.header("Fencing-Sequence", number), ..self },
            None => self,
        }
    }

    pub(super) async fn send(self) -> Result<Answer<Reply<'a>>, StorageError> {
        let Self { origin, http } = self;
        let exchange = async {
            let response = http.send().await.map_err(|error| origin.unanswered(&error))?;
            let response: hyper::Response<reqwest::Body> = response.into();
            let (head, body) = response.into_parts();
            let body = whole(body).await.map_err(|reason| origin.unknown(reason))?;
            Ok(Response { status: head.status, headers: head.headers, body })
        };
        let response = timeout(ANSWER_TIMEOUT, exchange).await.map_err(|_| {
            origin.unknown(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))
        })??;
        let status = response.status;
        if status.is_success() {
            return Ok(Answer::Accepted(Reply { origin, response: Some(response) }));
        }
        match serde_json::from_slice::<Problem>(&response.body) {
            Ok(problem) if problem.r#type.starts_with("/problems/") => {
                decision(origin, status, problem)
            }
            // The storage answers so if it can't read the head of a request.
            _ if status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                Err(origin.rejected(status.to_string()))
            }
            // A proxy may answer by itself after it has forwarded the request.
            _ => {
                let hint = origin.hint(status == StatusCode::BAD_REQUEST);
                Err(origin.unknown(format!("{status}, and no answer of a storage server{hint}")))
            }
        }
    }
}

/// Reads a body, up to its longest length. A server that sends without an end must not fill the
/// memory.
async fn whole(body: impl Body<Data = Bytes, Error: Into<Cause>>) -> Result<Bytes, String> {
    let too_long = || format!("an answer of more than {MAX_BODY_BYTES} bytes");
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_long());
    }
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_long()),
        Err(error) => Err(innermost(&*error).to_string()),
    }
}

/// A problem document (RFC 9457), with the members that are needed here.
#[derive(Deserialize)]
struct Problem {
    r#type: String,
    detail: String,
    resource: Option<String>,
    token: Option<Token>,
    highest_token: Option<Token>,
    outcome: Option<String>,
}

/// Distinguishes a decision from an error. If the resource has no value, the token was accepted.
fn decision(
    origin: Origin<'_>,
    status: StatusCode,
    problem: Problem,
) -> Result<Answer<Reply<'_>>, StorageError> {
    let rejected = |reason| match (problem.token, problem.highest_token) {
        (Some(token), Some(highest_token)) => {
            Ok(Answer::Rejected(Rejection { reason, token, highest_token }))
        }
        _ => Err(origin.rejected("a rejection without its tokens")),
    };
    match (problem.r#type.as_str(), problem.outcome.as_deref()) {
        ("/problems/stale-token", _) => rejected(RejectionReason::Stale),
        ("/problems/holder-conflict", _) => rejected(RejectionReason::HolderConflict),
        // Without `resource`, the server does not know the path.
        ("/problems/not-found", _) if problem.resource.is_some() => {
            Ok(Answer::Accepted(Reply { origin, response: None }))
        }
        (_, Some("none")) => Err(origin.unavailable(problem.detail)),
        (_, Some(_)) => Err(origin.unknown(problem.detail)),
        _ if status.is_client_error() => Err(origin.rejected(problem.detail)),
        _ => Err(origin.unknown(problem.detail)),
    }
}

/// The reply to a request whose token was accepted.
pub(super) struct Reply<'a> {
    origin: Origin<'a>,
    /// `None` if the resource has no value.
    response: Option<Response>,
}

/// The body of the reply to a write or a claim.
#[derive(Deserialize)]
struct Accepted {
    version: u64,
}

impl Reply<'_> {
    pub(super) fn version(self) -> Result<u64, StorageError> {
        let origin = self.origin;
        let Some(response) = self.response else {
            return Err(origin.no_storage_server("there is no such path"));
        };
        // A proxy may have replaced the storage's reply after the storage carried out the write.
        let accepted: Accepted = serde_json::from_slice(&response.body)
            .map_err(|_| origin.unknown("a success without a version"))?;
        Ok(accepted.version)
    }

    pub(super) fn deleted(self) -> Result<(), StorageError> {
        match self.response.map(|response| response.status) {
            Some(StatusCode::NO_CONTENT) => Ok(()),
            Some(status) => Err(self.origin.unknown(format!("{status} for a delete"))),
            None => Err(self.origin.no_storage_server("there is no such path")),
        }
    }

    pub(super) fn value(self) -> Result<Option<Value>, StorageError> {
        let origin = self.origin;
        let Some(response) = self.response else {
            return Ok(None);
        };
        let header = |name: &str| response.headers.get(name).and_then(|value| value.to_str().ok());
        let version = header("etag")
            // A proxy that compresses the value makes the tag a weak one.
            .map(|tag| tag.strip_prefix("W/").unwrap_or(tag))
            .and_then(|tag| tag.trim_matches('"').parse().ok())
            .ok_or_else(|| origin.unknown("a value without a version"))?;
        let token = header("fencing-token").and_then(|token| token.parse().ok());
        let content_type = header("content-type").unwrap_or_default().to_owned();
        Ok(Some(Value { bytes: response.body, content_type, version, token }))
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, iter::repeat_n};

    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    #[tokio::test]
    async fn body_of_unknown_length_is_read_up_to_the_longest() {
        static PART: [u8; 1 << 20] = [b'x'; 1 << 20];
        let of_parts = |number| {
            let part = || Ok::<_, Infallible>(Frame::data(Bytes::from_static(&PART)));
            StreamBody::new(stream::iter(repeat_n((), number).map(move |()| part())))
        };
        let longest = whole(of_parts(256)).await.unwrap();
        assert_eq!(longest.len(), MAX_BODY_BYTES);
        let reason = whole(of_parts(usize::MAX)).await.unwrap_err();
        assert_eq!(reason, "an answer of more than 268435456 bytes");
    }
}

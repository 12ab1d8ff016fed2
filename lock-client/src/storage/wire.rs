//! Requests as they are sent, and answers as they come.

use fence::{Fence, Refusal, RefusalReason, Token};
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::Deserialize;

use super::{Answer, StorageError, Value};

pub(super) fn fenced(request: RequestBuilder, fence: &Fence) -> RequestBuilder {
    let request = request.header("Fencing-Token", fence.token.as_u64());
    if fence.holder.is_empty() {
        request
    } else {
        request.header("Fencing-Holder", fence.holder.as_str())
    }
}

/// A problem document (RFC 9457), as far as its members matter here.
#[derive(Deserialize)]
struct Problem {
    r#type: String,
    detail: String,
    resource: Option<String>,
    token: Option<Token>,
    highest_token: Option<Token>,
    outcome: Option<String>,
}

/// Sends a request. `None` is accepted too, but there is nothing at that name.
pub(super) async fn send(
    request: RequestBuilder,
) -> Result<Answer<Option<Response>>, StorageError> {
    let response = request.send().await.map_err(|error| {
        // The URL may have a password in it.
        let error = error.without_url();
        if error.is_connect() || error.is_builder() {
            StorageError::Unavailable(with_causes(&error))
        } else {
            StorageError::Unknown(with_causes(&error))
        }
    })?;
    let status = response.status();
    if status.is_success() {
        return Ok(Answer::Accepted(Some(response)));
    }
    let document = response.bytes().await.unwrap_or_default();
    match serde_json::from_slice(&document) {
        Ok(problem) => decision(status, problem).map(|answer| match answer {
            Answer::Accepted(()) => Answer::Accepted(None),
            Answer::Refused(refusal) => Answer::Refused(refusal),
        }),
        Err(_) if status.is_client_error() => {
            Err(StorageError::Rejected(format!("{status}, and no problem document")))
        }
        Err(_) => Err(StorageError::Unknown(format!("{status}, and no problem document"))),
    }
}

/// Tells a decision from an error. Nothing at a name is accepted, too.
fn decision(status: StatusCode, problem: Problem) -> Result<Answer<()>, StorageError> {
    let refused = |reason| match (problem.token, problem.highest_token) {
        (Some(token), Some(highest_token)) => {
            Ok(Answer::Refused(Refusal { reason, token, highest_token }))
        }
        _ => Err(StorageError::Rejected("a refusal that doesn't tell its tokens".to_owned())),
    };
    match (problem.r#type.as_str(), problem.outcome.as_deref()) {
        ("/problems/stale-token", _) => refused(RefusalReason::Stale),
        ("/problems/holder-conflict", _) => refused(RefusalReason::HolderConflict),
        // Without the resource, it is the path that was not found.
        ("/problems/not-found", _) if problem.resource.is_some() => Ok(Answer::Accepted(())),
        ("/problems/unavailable", Some("none")) => Err(StorageError::Unavailable(problem.detail)),
        _ if status.is_client_error() => Err(StorageError::Rejected(problem.detail)),
        _ => Err(StorageError::Unknown(problem.detail)),
    }
}

/// What the storage server answers to a write or a claim.
#[derive(Deserialize)]
struct Accepted {
    version: u64,
}

pub(super) async fn version(answer: Answer<Option<Response>>) -> Result<Answer<u64>, StorageError> {
    match answer {
        Answer::Accepted(Some(response)) => {
            let body = response.bytes().await.map_err(lost_answer)?;
            // Somebody in between may have answered in the storage's stead, after it has written.
            let accepted: Accepted = serde_json::from_slice(&body)
                .map_err(|_| StorageError::Unknown("a success without a version".to_owned()))?;
            Ok(Answer::Accepted(accepted.version))
        }
        Answer::Accepted(None) => Err(not_ours("there is no such path")),
        Answer::Refused(refusal) => Ok(Answer::Refused(refusal)),
    }
}

pub(super) fn deleted(answer: Answer<Option<Response>>) -> Result<Answer<()>, StorageError> {
    match answer {
        Answer::Accepted(Some(response)) if response.status() == StatusCode::NO_CONTENT => {
            Ok(Answer::Accepted(()))
        }
        Answer::Accepted(Some(response)) => {
            Err(StorageError::Unknown(format!("{} for a delete", response.status())))
        }
        Answer::Accepted(None) => Err(not_ours("there is no such path")),
        Answer::Refused(refusal) => Ok(Answer::Refused(refusal)),
    }
}

pub(super) async fn value(response: Option<Response>) -> Result<Option<Value>, StorageError> {
    let Some(response) = response else {
        return Ok(None);
    };
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let version = header("etag")
        .and_then(|tag| tag.trim_matches('"').parse().ok())
        .ok_or_else(|| not_ours("a value without a version"))?;
    let token = header("fencing-token").and_then(|token| token.parse().ok());
    let content_type = header("content-type").unwrap_or_default().to_owned();
    let bytes = response.bytes().await.map_err(lost_answer)?;
    Ok(Some(Value { bytes, content_type, version, token }))
}

fn lost_answer(error: reqwest::Error) -> StorageError {
    StorageError::Unknown(with_causes(&error.without_url()))
}

fn not_ours(reason: &str) -> StorageError {
    StorageError::Rejected(format!("this is no storage server: {reason}"))
}

/// An error with its causes: reqwest's own text leaves out what went wrong.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

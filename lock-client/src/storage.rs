//! A client of the storage server, which checks tokens.
//!
//! A refusal is not an error here but an [`Answer`]: the storage has decided, and nothing was
//! changed. An error says whether anything may have happened: [`StorageError::Unknown`] is the one
//! after which a write may still land.

use std::time::Duration;

use bytes::Bytes;
use fence::{Fence, Refusal, RefusalReason, ResourceName, Token};
use reqwest::{
    Client, Method, RequestBuilder, Response, StatusCode, Url, header::CONTENT_TYPE,
    redirect::Policy,
};
use serde::Deserialize;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than the server itself waits for its database.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// A storage server.
#[derive(Clone, Debug)]
pub struct Storage {
    base: Url,
    http: Client,
}

/// What the storage decided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer<T> {
    /// The offer was accepted, durably.
    Accepted(T),
    /// The offer was refused, and nothing was changed.
    Refused(Refusal),
}

/// A value as the storage keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value itself.
    pub bytes: Bytes,
    /// What it is.
    pub content_type: String,
    /// Which of the resource's writes and deletes it comes from, counted from 1.
    pub version: u64,
    /// The token that it was written with, if any.
    pub token: Option<Token>,
}

/// Why the storage did not decide.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// Nothing has happened. Try again.
    #[error("the storage is unavailable, and nothing has happened: {0}")]
    Unavailable(String),
    /// It may have happened, and a write may still land. Before anything else is sent, take a
    /// higher token and make a fenced read with it: it shows whether the write landed, and cuts it
    /// off if it did not.
    #[error("the storage did not answer, and may have done what it was asked: {0}")]
    Unknown(String),
    /// The request is wrong; sending it again would not help.
    #[error("the storage rejected the request: {0}")]
    Rejected(String),
}

/// The URL can't be used.
#[derive(Debug, thiserror::Error)]
#[error("not a usable storage URL: {0}")]
pub struct InvalidUrl(String);

impl Storage {
    /// Makes a client of the storage server at an `http://` URL. It connects when it is first used.
    ///
    /// # Errors
    /// [`InvalidUrl`] if the URL can't be used.
    pub fn new(url: &str) -> Result<Self, InvalidUrl> {
        let base = Url::parse(url).map_err(|error| InvalidUrl(error.to_string()))?;
        if base.scheme() != "http" || !base.has_host() {
            return Err(InvalidUrl(format!("{url} does not begin with http:// and a host")));
        }
        let http = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .redirect(Policy::none())
            .build()
            .map_err(|error| InvalidUrl(error.to_string()))?;
        Ok(Self { base, http })
    }

    /// Reads a value, without claiming. `None` if there is no value.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn read(&self, resource: &ResourceName) -> Result<Option<Value>, StorageError> {
        let request = self.request(Method::GET, "resources", resource);
        match send(request).await? {
            Answer::Accepted(response) => value(response).await,
            Answer::Refused(_) => Err(StorageError::Rejected("a plain read was refused".into())),
        }
    }

    /// Claims the resource and reads its value, in one step: from here on, older tokens are refused.
    /// The read to begin a read-modify-write with. `None` if there is no value.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn fenced_read(
        &self,
        resource: &ResourceName,
        fence: &Fence,
    ) -> Result<Answer<Option<Value>>, StorageError> {
        let request = fenced(self.request(Method::GET, "resources", resource), fence);
        match send(request).await? {
            Answer::Accepted(response) => value(response).await.map(Answer::Accepted),
            Answer::Refused(refusal) => Ok(Answer::Refused(refusal)),
        }
    }

    /// Sets a value, and returns its version.
    ///
    /// # Errors
    /// See [`StorageError`].
    ///
    /// # Cancellation safety
    /// If this future is dropped, the write may still land.
    pub async fn write(
        &self,
        resource: &ResourceName,
        fence: &Fence,
        content_type: &str,
        value: impl Into<Bytes>,
    ) -> Result<Answer<u64>, StorageError> {
        let request = fenced(self.request(Method::PUT, "resources", resource), fence);
        let request = request.header(CONTENT_TYPE, content_type).body(value.into());
        version(send(request).await?).await
    }

    /// Removes a value, if there is one.
    ///
    /// # Errors
    /// See [`StorageError`].
    ///
    /// # Cancellation safety
    /// If this future is dropped, the delete may still land.
    pub async fn delete(
        &self,
        resource: &ResourceName,
        fence: &Fence,
    ) -> Result<Answer<()>, StorageError> {
        let request = fenced(self.request(Method::DELETE, "resources", resource), fence);
        match send(request).await? {
            Answer::Accepted(Some(_)) => Ok(Answer::Accepted(())),
            Answer::Accepted(None) => Err(not_ours("there is no such path")),
            Answer::Refused(refusal) => Ok(Answer::Refused(refusal)),
        }
    }

    /// Claims a resource without reading or writing it, and returns its version.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn claim(
        &self,
        resource: &ResourceName,
        fence: &Fence,
    ) -> Result<Answer<u64>, StorageError> {
        let request = fenced(self.request(Method::PUT, "fences", resource), fence);
        version(send(request).await?).await
    }

    fn request(&self, method: Method, kind: &str, resource: &ResourceName) -> RequestBuilder {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .expect("a URL with a host has a path")
            .pop_if_empty()
            .extend(["v1", kind])
            .extend(resource.as_str().split('/'));
        self.http.request(method, url)
    }
}

fn fenced(request: RequestBuilder, fence: &Fence) -> RequestBuilder {
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
async fn send(request: RequestBuilder) -> Result<Answer<Option<Response>>, StorageError> {
    let response = request.send().await.map_err(|error| {
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

async fn version(answer: Answer<Option<Response>>) -> Result<Answer<u64>, StorageError> {
    match answer {
        Answer::Accepted(Some(response)) => {
            let body = response.bytes().await.map_err(|error| lost_answer(&error))?;
            let accepted: Accepted =
                serde_json::from_slice(&body).map_err(|error| not_ours(&error.to_string()))?;
            Ok(Answer::Accepted(accepted.version))
        }
        Answer::Accepted(None) => Err(not_ours("there is no such path")),
        Answer::Refused(refusal) => Ok(Answer::Refused(refusal)),
    }
}

async fn value(response: Option<Response>) -> Result<Option<Value>, StorageError> {
    let Some(response) = response else {
        return Ok(None);
    };
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let version = header("etag")
        .and_then(|tag| tag.trim_matches('"').parse().ok())
        .ok_or_else(|| not_ours("a value without a version"))?;
    let token = header("fencing-token").and_then(|token| token.parse().ok());
    let content_type = header("content-type").unwrap_or_default().to_owned();
    let bytes = response.bytes().await.map_err(|error| lost_answer(&error))?;
    Ok(Some(Value { bytes, content_type, version, token }))
}

fn lost_answer(error: &reqwest::Error) -> StorageError {
    StorageError::Unknown(with_causes(error))
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

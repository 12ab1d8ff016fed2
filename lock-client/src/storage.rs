//! A client of the storage server, which checks tokens.
//!
//! [`FencedResource`] is a resource used under a lease, which does what is right with a refusal and
//! an unknown outcome. [`Storage`] sends single requests. There, a refusal is not an error but an
//! [`Answer`]: the storage has decided, and nothing was changed. An error says whether anything may
//! have happened: [`StorageError::Unknown`] is the one after which a write may still land.

mod fenced_resource;
mod wire;

use std::time::Duration;

use bytes::Bytes;
use fence::{Fence, Refusal, ResourceName, Token};
use reqwest::{Client, Method, RequestBuilder, Url, header::CONTENT_TYPE, redirect::Policy};

pub(crate) use self::fenced_resource::SharedClaim;
pub use self::fenced_resource::{FencedError, FencedResource};
use self::wire::{deleted, fenced, send, value, version};
use crate::Lease;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than the server itself waits for its database.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// A storage server.
#[derive(Clone, Debug)]
pub struct Storage {
    base: Base,
    http: Client,
}

/// The URL of a storage server, of which only the host is shown: it may have a password in it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Base(Url);

impl std::fmt::Debug for Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.host_str().unwrap_or_default())
    }
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
            return Err(InvalidUrl("it does not begin with http:// and a host".to_owned()));
        }
        let http = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .redirect(Policy::none())
            .build()
            .map_err(|error| InvalidUrl(error.to_string()))?;
        Ok(Self { base: Base(base), http })
    }

    /// Uses a resource under a lease: what most people want.
    pub fn under(&self, lease: &Lease, resource: &ResourceName) -> FencedResource {
        FencedResource::new(self.clone(), lease, resource.clone())
    }

    /// Reads a value, without claiming. `None` if there is no value.
    ///
    /// # Errors
    /// See [`StorageError`]; never [`StorageError::Unknown`].
    pub async fn read(&self, resource: &ResourceName) -> Result<Option<Value>, StorageError> {
        let request = self.request(Method::GET, "resources", resource);
        let read = async {
            match send(request).await? {
                Answer::Accepted(response) => value(response).await,
                Answer::Refused(_) => {
                    Err(StorageError::Rejected("a plain read was refused".into()))
                }
            }
        };
        // Whatever has become of it, it has changed nothing.
        read.await.map_err(|error| match error {
            StorageError::Unknown(reason) => StorageError::Unavailable(reason),
            error => error,
        })
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
        deleted(send(request).await?)
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
        let mut url = self.base.0.clone();
        url.path_segments_mut()
            .expect("a URL with a host has a path")
            .pop_if_empty()
            .extend(["v1", kind])
            .extend(resource.as_str().split('/'));
        self.http.request(method, url)
    }
}

//! Single requests to the storage server.

use std::time::Duration;

use bytes::Bytes;
use fence::{Fence, ResourceName};
use reqwest::{Client, Method, header::CONTENT_TYPE, redirect::Policy};

use super::{
    answer::{Answer, Value},
    error::{StorageError, StorageRequestError},
    server_url::{InvalidStorageUrl, ServerUrl},
    wire::Request,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// It is longer than the server itself waits for its database.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// A storage server.
#[derive(Clone, Debug)]
pub struct Storage {
    pub(super) url: ServerUrl,
    http: Client,
}

impl Storage {
    /// Makes a client of the storage server at an `http://` URL. It connects when it is first used.
    ///
    /// # Errors
    /// [`InvalidStorageUrl`] if the URL can't be used.
    pub fn new(url: &str) -> Result<Self, InvalidStorageUrl> {
        let url = ServerUrl::parse(url)?;
        let http = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .redirect(Policy::none())
            .build()
            .map_err(|error| InvalidStorageUrl::new(error.to_string()))?;
        Ok(Self { url, http })
    }

    /// Reads a value without claiming. Returns `None` if there is no value.
    ///
    /// # Errors
    /// See [`StorageError`]. It is never [`StorageError::Unknown`].
    pub async fn read(&self, resource: &ResourceName) -> Result<Option<Value>, StorageError> {
        let read = async {
            match self.request(Method::GET, "resources", resource).send().await? {
                Answer::Accepted(reply) => reply.value().await,
                Answer::Refused(_) => Err(StorageError::Rejected(StorageRequestError::new(
                    &self.url,
                    resource,
                    "a plain read was refused",
                ))),
            }
        };
        // A read changes nothing, so its outcome is never unknown.
        read.await.map_err(|error| match error {
            StorageError::Unknown(cause) => StorageError::Unavailable(cause),
            error => error,
        })
    }

    /// Claims the resource and reads its value, in one step: from here on, older tokens are
    /// refused. A read-modify-write begins with it. Returns `None` if there is no value.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn fenced_read(
        &self,
        resource: &ResourceName,
        fence: &Fence,
    ) -> Result<Answer<Option<Value>>, StorageError> {
        let request = self.request(Method::GET, "resources", resource).fenced(fence);
        match request.send().await? {
            Answer::Accepted(reply) => reply.value().await.map(Answer::Accepted),
            Answer::Refused(refusal) => Ok(Answer::Refused(refusal)),
        }
    }

    /// Sets a value, and returns its version.
    ///
    /// # Errors
    /// See [`StorageError`].
    ///
    /// # Cancellation safety
    /// If this future is dropped, the write may still be carried out.
    pub async fn write(
        &self,
        resource: &ResourceName,
        fence: &Fence,
        content_type: &str,
        value: impl Into<Bytes>,
    ) -> Result<Answer<u64>, StorageError> {
        let mut request = self.request(Method::PUT, "resources", resource).fenced(fence);
        request.http = request.http.header(CONTENT_TYPE, content_type).body(value.into());
        accepted_version(request).await
    }

    /// Deletes a value, if there is one.
    ///
    /// # Errors
    /// See [`StorageError`].
    ///
    /// # Cancellation safety
    /// If this future is dropped, the delete may still be carried out.
    pub async fn delete(
        &self,
        resource: &ResourceName,
        fence: &Fence,
    ) -> Result<Answer<()>, StorageError> {
        let request = self.request(Method::DELETE, "resources", resource).fenced(fence);
        match request.send().await? {
            Answer::Accepted(reply) => reply.deleted().map(Answer::Accepted),
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
        accepted_version(self.request(Method::PUT, "fences", resource).fenced(fence)).await
    }

    fn request<'a>(
        &'a self,
        method: Method,
        kind: &str,
        resource: &'a ResourceName,
    ) -> Request<'a> {
        let http = self.http.request(method, self.url.join(kind, resource));
        Request { server: &self.url, resource, http }
    }
}

async fn accepted_version(request: Request<'_>) -> Result<Answer<u64>, StorageError> {
    match request.send().await? {
        Answer::Accepted(reply) => reply.version().await.map(Answer::Accepted),
        Answer::Refused(refusal) => Ok(Answer::Refused(refusal)),
    }
}

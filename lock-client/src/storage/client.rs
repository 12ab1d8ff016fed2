//! Single requests to the storage server.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use fence::{Fence, ResourceName};
use http_body_util::Full;
use hyper::{
    Method, Request as HttpRequest,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::RootCertStore;

use super::{
    answer::{Answer, Value},
    error::{StorageError, StorageRequestError},
    server_url::{InvalidStorageUrl, ServerUrl},
    wire::Request,
};
use crate::tls::{
    Identity, UnusableFile, authorities, certificates, identity, system_authorities, trusting,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A storage server.
#[derive(Clone)]
pub struct Storage {
    pub(super) url: ServerUrl,
    pub(super) http: Arc<HttpClient>,
    authorities: Arc<RootCertStore>,
    identity: Option<Identity>,
    authorization: Option<HeaderValue>,
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").field("server", &self.url).finish_non_exhaustive()
    }
}

type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A setting of the storage's client can't be used. It displays as the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidStorageSetting(String);

impl From<UnusableFile> for InvalidStorageSetting {
    fn from(file: UnusableFile) -> Self {
        Self(file.to_string())
    }
}

impl Storage {
    /// Makes a client of the storage server at an `http://` or `https://` URL. It connects when it
    /// is first used.
    ///
    /// With `https://`, the server's certificate must be signed by one that the system trusts. The
    /// environment variable `SSL_CERT_FILE` may name a file with others.
    ///
    /// # Errors
    /// [`InvalidStorageUrl`] if the URL can't be used.
    pub fn new(url: &str) -> Result<Self, InvalidStorageUrl> {
        let url = ServerUrl::parse(url)?;
        let authorities = Arc::new(match url.is_encrypted() {
            true => system_authorities(),
            false => RootCertStore::empty(),
        });
        let authorization = url.basic_credentials().and_then(|credentials| secret(&credentials));
        let http = http_client(&authorities, None);
        Ok(Self { url, http, authorities, identity: None, authorization })
    }

    /// Trusts the authorities in this PEM file, instead of the system's.
    ///
    /// # Errors
    /// If the file can't be read, or has no certificate.
    pub fn trust(self, ca_file: impl AsRef<Path>) -> Result<Self, InvalidStorageSetting> {
        let authorities = Arc::new(authorities(ca_file)?);
        Ok(Self { http: http_client(&authorities, self.identity.clone()), authorities, ..self })
    }

    /// Shows the certificate in this PEM file to a server that asks for one. The certificates between
    /// it and the server's authority for clients may follow in the file. The key is PEM, too, and has no
    /// passphrase.
    ///
    /// # Errors
    /// If a file can't be read, or the key is not the certificate's.
    pub fn client_certificate(
        self,
        certificate_file: impl AsRef<Path>,
        key_file: impl AsRef<Path>,
    ) -> Result<Self, InvalidStorageSetting> {
        let identity = Some(identity(certificates(certificate_file)?, key_file)?);
        Ok(Self { http: http_client(&self.authorities, identity.clone()), identity, ..self })
    }

    /// Sends this bearer token with each request, which `storage-server auth new` has printed.
    ///
    /// # Errors
    /// If it is empty, or has other characters than visible ASCII.
    pub fn bearer_token(self, token: &str) -> Result<Self, InvalidStorageSetting> {
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        let header = is_token.then(|| secret(&format!("Bearer {token}"))).flatten();
        let authorization = header.ok_or_else(|| {
            InvalidStorageSetting("a bearer token is a word of visible ASCII characters".into())
        })?;
        Ok(Self { authorization: Some(authorization), ..self })
    }

    /// Reads a value without claiming. Returns `None` if there is no value.
    ///
    /// # Errors
    /// See [`StorageError`]. It is never [`StorageError::Unknown`].
    pub async fn read(&self, resource: &ResourceName) -> Result<Option<Value>, StorageError> {
        let read = async {
            match self.request(Method::GET, "resources", resource).send().await? {
                Answer::Accepted(reply) => reply.value(),
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
            Answer::Accepted(reply) => reply.value().map(Answer::Accepted),
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
        self.put(resource, fence, None, content_type, value.into()).await
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
        self.remove(resource, fence, None).await
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

    /// Sends a write once. Only one with a number may be sent again.
    pub(super) async fn put(
        &self,
        resource: &ResourceName,
        fence: &Fence,
        number: Option<u64>,
        content_type: &str,
        value: Bytes,
    ) -> Result<Answer<u64>, StorageError> {
        let request = self.request(Method::PUT, "resources", resource).fenced(fence);
        let mut request = request.numbered(number);
        request.http = request.http.header(CONTENT_TYPE, content_type);
        request.body = value;
        accepted_version(request).await
    }

    /// Sends a delete once. Only one with a number may be sent again.
    pub(super) async fn remove(
        &self,
        resource: &ResourceName,
        fence: &Fence,
        number: Option<u64>,
    ) -> Result<Answer<()>, StorageError> {
        let request = self.request(Method::DELETE, "resources", resource).fenced(fence);
        match request.numbered(number).send().await? {
            Answer::Accepted(reply) => reply.deleted().map(Answer::Accepted),
            Answer::Refused(refusal) => Ok(Answer::Refused(refusal)),
        }
    }

    fn request<'a>(
        &'a self,
        method: Method,
        kind: &str,
        resource: &'a ResourceName,
    ) -> Request<'a> {
        let mut http = HttpRequest::builder().method(method).uri(self.url.join(kind, resource));
        if let Some(authorization) = &self.authorization {
            http = http.header(AUTHORIZATION, authorization);
        }
        Request { storage: self, resource, http, body: Bytes::new() }
    }
}

fn http_client(authorities: &Arc<RootCertStore>, identity: Option<Identity>) -> Arc<HttpClient> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let tls = trusting(authorities.clone());
    let tls = match identity {
        Some(identity) => tls.with_client_cert_resolver(identity),
        None => tls.with_no_client_auth(),
    };
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls);
    let connector = connector.https_or_http().enable_http1().wrap_connector(tcp);
    Arc::new(Client::builder(TokioExecutor::new()).build(connector))
}

/// A header that is not printed; `None` if it can't be one.
fn secret(value: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(value).ok()?;
    header.set_sensitive(true);
    Some(header)
}

async fn accepted_version(request: Request<'_>) -> Result<Answer<u64>, StorageError> {
    match request.send().await? {
        Answer::Accepted(reply) => reply.version().map(Answer::Accepted),
        Answer::Refused(refusal) => Ok(Answer::Refused(refusal)),
    }
}

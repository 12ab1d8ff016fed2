//! Single requests to the storage server.

#[cfg(feature = "storage-tls")]
use std::path::Path;
use std::{fmt, time::Duration};

use bytes::Bytes;
use fence::{Fence, ResourceName};
use reqwest::{
    Client, ClientBuilder, Method,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
    redirect, retry,
};

use super::{
    answer::{Answer, Value},
    error::{StorageError, StorageRequestError},
    server_url::ServerUrl,
    wire::{Origin, Request},
};
use crate::InvalidUrl;
#[cfg(feature = "storage-tls")]
use crate::tls::{self, Certificates, NamedFiles};

/// It includes the handshake of an encrypted connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection may be idle. The server closes its end after 20 s: a request that is sent
/// just then would have an unknown outcome.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

#[cfg(feature = "storage-tls")]
const NO_FILES: NamedFiles = NamedFiles {
    authority: ("authority", None),
    certificate: ("certificate", None),
    key: ("key", None),
};

/// A storage server.
#[derive(Clone)]
pub struct Storage {
    pub(super) url: ServerUrl,
    http: Client,
    /// The authority, the client's certificate and its key, as far as they are named.
    #[cfg(feature = "storage-tls")]
    files: Box<NamedFiles>,
    authorization: HeaderMap,
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").field("server", &self.url).finish_non_exhaustive()
    }
}

/// A setting of the storage's client can't be used. It displays as the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidStorageSetting(String);

impl Storage {
    /// Makes a client of the storage server at an `http://` or `https://` URL. It connects when it
    /// is first used.
    ///
    /// `https://` needs the feature `storage-tls`. The server's certificate must be signed by one
    /// that the system trusts. The environment variable `SSL_CERT_FILE` may name a file with others.
    /// All certificates are read again for each new connection, because they are renewed on disk. If
    /// that fails, the last good ones are used, and a warning is logged.
    ///
    /// # Errors
    /// [`InvalidUrl`] if the URL can't be used, or if it has a password, which anybody between
    /// this machine and the storage could read.
    pub fn new(url: &str) -> Result<Self, InvalidUrl> {
        let url = ServerUrl::open(url)?;
        Ok(Self {
            #[cfg(feature = "storage-tls")]
            http: client(Client::builder().tls_backend_preconfigured(match url.is_encrypted() {
                true => Certificates::read(NO_FILES)?.live_config(),
                false => tls::unencrypted(),
            })),
            #[cfg(not(feature = "storage-tls"))]
            http: client(Client::builder()),
            #[cfg(feature = "storage-tls")]
            files: Box::new(NO_FILES),
            authorization: HeaderMap::new(),
            url,
        })
    }

    /// Trusts the authorities in this PEM file, instead of the system's.
    ///
    /// # Errors
    /// If the file can't be read, or has no certificate. If the URL is not `https://`.
    #[cfg(feature = "storage-tls")]
    pub fn trust(mut self, ca_file: impl AsRef<Path>) -> Result<Self, InvalidStorageSetting> {
        self.files.authority.1 = Some(text(ca_file.as_ref())?);
        self.with_files()
    }

    /// Shows the certificate in this PEM file to a server that asks for one. The certificates between
    /// it and the server's authority for clients may follow in the file. The key is PEM, too, and has no
    /// passphrase.
    ///
    /// # Errors
    /// If a file can't be read, or the key is not the certificate's. If the URL is not `https://`.
    #[cfg(feature = "storage-tls")]
    pub fn client_certificate(
        mut self,
        certificate_file: impl AsRef<Path>,
        key_file: impl AsRef<Path>,
    ) -> Result<Self, InvalidStorageSetting> {
        self.files.certificate.1 = Some(text(certificate_file.as_ref())?);
        self.files.key.1 = Some(text(key_file.as_ref())?);
        self.with_files()
    }

    /// A certificate is used only on an encrypted connection.
    #[cfg(feature = "storage-tls")]
    fn with_files(self) -> Result<Self, InvalidStorageSetting> {
        if !self.url.is_encrypted() {
            let reason = format!("{} is not encrypted: a certificate needs https://", self.url);
            return Err(InvalidStorageSetting(reason));
        }
        let certificates = Certificates::read(*self.files.clone());
        let certificates =
            certificates.map_err(|error| InvalidStorageSetting(error.to_string()))?;
        let builder = Client::builder().tls_backend_preconfigured(certificates.live_config());
        Ok(Self { http: client(builder), ..self })
    }

    /// Sends this bearer token with each request, which `storage-server auth new` has printed.
    ///
    /// # Errors
    /// If it is empty, or has other characters than visible ASCII. If the storage is on another
    /// machine, and its URL is not `https://`: everybody in between could read the token.
    pub fn bearer_token(self, token: &str) -> Result<Self, InvalidStorageSetting> {
        if !self.url.is_confidential() {
            return Err(InvalidStorageSetting(format!(
                "a bearer token is sent to another machine only encrypted: {} needs https://",
                self.url
            )));
        }
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        let header = is_token.then(|| HeaderValue::try_from(format!("Bearer {token}")).ok());
        let mut header = header.flatten().ok_or_else(|| {
            InvalidStorageSetting("a bearer token is a word of visible ASCII characters".into())
        })?;
        header.set_sensitive(true);
        Ok(Self { authorization: HeaderMap::from_iter([(AUTHORIZATION, header)]), ..self })
    }

    /// Reads a value without claiming. Returns `None` if there is no value.
    ///
    /// # Errors
    /// See [`StorageError`]. It is never [`StorageError::Unknown`].
    pub async fn read(&self, resource: &ResourceName) -> Result<Option<Value>, StorageError> {
        let read = async {
            match self.request(Method::GET, "resources", resource).send().await? {
                Answer::Accepted(reply) => reply.value(),
                Answer::Rejected(_) => Err(StorageError::Rejected(StorageRequestError::new(
                    &self.url,
                    resource,
                    "a plain read was rejected",
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
    /// rejected. A read-modify-write begins with it. Returns `None` if there is no value.
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
            Answer::Rejected(rejection) => Ok(Answer::Rejected(rejection)),
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
        request.http = request.http.header(CONTENT_TYPE, content_type).body(value);
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
            Answer::Rejected(rejection) => Ok(Answer::Rejected(rejection)),
        }
    }

    fn request<'a>(
        &'a self,
        method: Method,
        kind: &str,
        resource: &'a ResourceName,
    ) -> Request<'a> {
        let http = self.http.request(method, self.url.join(kind, resource));
        // These replace the user and the password of the URL.
        let http = http.headers(self.authorization.clone());
        Request { origin: Origin { server: &self.url, resource }, http }
    }
}

#[cfg(feature = "storage-tls")]
fn text(file: &Path) -> Result<String, InvalidStorageSetting> {
    let text = file.to_str().map(str::to_owned);
    text.ok_or_else(|| InvalidStorageSetting(format!("{} is not UTF-8", file.display())))
}

/// Makes a client that sends each request once, to the server itself, and returns its answer as it
/// is. Other crates of the program may enable more features of `reqwest`.
fn client(builder: ClientBuilder) -> Client {
    let builder = builder.redirect(redirect::Policy::none()).retry(retry::never()).no_proxy();
    let builder = builder.no_gzip().no_brotli().no_deflate().no_zstd();
    let builder = builder.http1_only().no_hickory_dns();
    let builder = builder.connect_timeout(CONNECT_TIMEOUT).pool_idle_timeout(IDLE_TIMEOUT);
    builder.build().expect("the settings fit")
}

async fn accepted_version(request: Request<'_>) -> Result<Answer<u64>, StorageError> {
    match request.send().await? {
        Answer::Accepted(reply) => reply.version().map(Answer::Accepted),
        Answer::Rejected(rejection) => Ok(Answer::Rejected(rejection)),
    }
}

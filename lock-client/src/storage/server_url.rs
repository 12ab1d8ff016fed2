//! The URL of a storage server.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use fence::ResourceName;
use hyper::Uri;
use percent_encoding::percent_decode_str;
use url::Url;

/// The URL of a storage server. It displays as host and port, because it may contain a password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ServerUrl(Url);

impl ServerUrl {
    pub(super) fn parse(url: &str) -> Result<Self, InvalidStorageUrl> {
        let url = Url::parse(url).map_err(|error| InvalidStorageUrl::new(error.to_string()))?;
        if ["http", "https"].contains(&url.scheme()) && url.has_host() {
            Ok(Self(url))
        } else {
            Err(InvalidStorageUrl::new("it does not begin with http:// or https:// and a host"))
        }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The user and the password in the URL, as the value of `Authorization`.
    pub(super) fn basic_credentials(&self) -> Option<String> {
        let (user, password) = (self.0.username(), self.0.password().unwrap_or_default());
        let decoded = |text| percent_decode_str(text).collect::<Vec<u8>>();
        let credentials = [&decoded(user)[..], b":", &decoded(password)].concat();
        (credentials != b":").then(|| format!("Basic {}", BASE64_STANDARD.encode(credentials)))
    }

    /// The URL of a resource (`kind` is `resources`) or of its fence (`fences`).
    pub(super) fn join(&self, kind: &str, resource: &ResourceName) -> Uri {
        let mut url = self.0.clone();
        url.set_username("").and_then(|()| url.set_password(None)).expect("it has a host");
        url.path_segments_mut()
            .expect("a URL with a host has a path")
            .pop_if_empty()
            .extend(["v1", kind])
            .extend(resource.as_str().split('/'));
        Uri::try_from(url.as_str()).expect("a URL is a URI")
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.0.host_str().unwrap_or_default();
        write!(f, "{host}:{}", self.0.port_or_known_default().unwrap_or_default())
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The URL can't be used.
#[derive(Debug, thiserror::Error)]
#[error("not a usable storage URL: {reason}")]
pub struct InvalidStorageUrl {
    reason: String,
}

impl InvalidStorageUrl {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

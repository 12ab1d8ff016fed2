//! The URL of a storage server.

use std::fmt;

use fence::ResourceName;
use reqwest::Url;

/// The URL of a storage server. It displays as host and port, because it may contain a password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ServerUrl(Url);

impl ServerUrl {
    pub(super) fn parse(url: &str) -> Result<Self, InvalidStorageUrl> {
        let url = Url::parse(url).map_err(|error| InvalidStorageUrl::new(error.to_string()))?;
        if url.scheme() == "http" && url.has_host() {
            Ok(Self(url))
        } else {
            Err(InvalidStorageUrl::new("it does not begin with http:// and a host"))
        }
    }

    /// The URL of a resource (`kind` is `resources`) or of its fence (`fences`).
    pub(super) fn join(&self, kind: &str, resource: &ResourceName) -> Url {
        let mut url = self.0.clone();
        url.path_segments_mut()
            .expect("a URL with a host has a path")
            .pop_if_empty()
            .extend(["v1", kind])
            .extend(resource.as_str().split('/'));
        url
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

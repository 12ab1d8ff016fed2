//! The URL of a storage server.

use std::{fmt, net::IpAddr};

use fence::ResourceName;
use hyper::Uri;
use percent_encoding::percent_decode_str;
use reqwest::Url;

use crate::InvalidUrl;

/// The URL of a storage server. It displays as host and port, because it may contain a password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ServerUrl(Url);

impl ServerUrl {
    pub(super) fn open(url: &str) -> Result<Self, InvalidUrl> {
        let unusable =
            |invalid: InvalidUrl| invalid.within("not a usable storage URL", "https://HOST:PORT");
        Self::parse(url).map_err(unusable)
    }

    fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let url = Url::parse(url).map_err(|error| InvalidUrl::new(error.to_string()))?;
        let url = Self(url);
        if !["http", "https"].contains(&url.0.scheme()) || !url.0.has_host() {
            return Err(InvalidUrl::new("it does not begin with http:// or https:// and a host"));
        }
        if url.is_encrypted() && !cfg!(feature = "storage-tls") {
            return Err(InvalidUrl::new("https:// needs the feature `storage-tls`"));
        }
        if Uri::try_from(url.0.as_str()).is_err() {
            return Err(InvalidUrl::new("its host has characters that HTTP does not allow"));
        }
        // The HTTP client sends the user and the password. It leaves out other ones.
        let (user, password) = (url.0.username(), url.0.password().unwrap_or_default());
        if [user, password].iter().any(|text| percent_decode_str(text).decode_utf8().is_err()) {
            return Err(InvalidUrl::new("its user or its password is not UTF-8"));
        }
        if url.has_credentials() && !url.is_confidential() {
            return Err(InvalidUrl::new(format!(
                "a user and a password are sent to another machine only encrypted: {url} needs https://"
            )));
        }
        Ok(url)
    }

    fn has_credentials(&self) -> bool {
        !self.0.username().is_empty() || self.0.password().is_some()
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Whether what is sent leaves neither this machine nor encryption.
    pub(super) fn is_confidential(&self) -> bool {
        let host = self.0.host_str().unwrap_or_default();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_loopback = address.is_ok_and(|address| address.to_canonical().is_loopback());
        self.is_encrypted() || is_loopback || host == "localhost"
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

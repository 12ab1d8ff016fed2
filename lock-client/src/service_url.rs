//! The URL of a lock service. All services read its parts in the same way.

#[cfg(any(feature = "etcd", feature = "redis", feature = "zookeeper"))]
mod members;
mod settings;

use std::{error::Error, fmt};

#[cfg(any(feature = "sentinel", feature = "zookeeper"))]
pub(crate) use self::members::decoded;
#[cfg(any(
    feature = "cluster",
    feature = "etcd",
    feature = "sentinel",
    feature = "zookeeper"
))]
pub(crate) use self::members::{Member, User};
#[cfg(any(feature = "etcd", feature = "redis", feature = "zookeeper"))]
pub(crate) use self::members::{ServiceUrl, addresses};
pub(crate) use self::settings::UrlSettings;

/// The URL can't be used. It displays as the reason, without a password.
#[derive(Debug)]
pub(crate) struct InvalidUrl(String);

impl InvalidUrl {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for InvalidUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for InvalidUrl {}

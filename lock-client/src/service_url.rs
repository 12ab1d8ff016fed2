//! The URL of a lock service. All services read its parts in the same way.

#[cfg(any(feature = "cluster", feature = "sentinel"))]
mod members;
mod settings;

use std::{error::Error, fmt};

#[cfg(feature = "sentinel")]
pub(crate) use self::members::decoded;
#[cfg(any(feature = "cluster", feature = "sentinel"))]
pub(crate) use self::members::{Member, ServiceUrl};
pub(crate) use self::settings::UrlSettings;

/// The URL can't be used. It displays as the reason, without a password.
#[derive(Debug)]
pub(crate) struct InvalidUrl(String);

impl InvalidUrl {
    fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for InvalidUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for InvalidUrl {}

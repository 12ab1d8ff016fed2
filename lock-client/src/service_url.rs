//! The URL of a lock service. All services read its parts in the same way.

mod members;
mod settings;

use std::{error::Error, fmt};

pub(crate) use self::members::{Member, ServiceUrl, User, addresses, decoded};
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

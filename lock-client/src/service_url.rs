//! The URL of a lock service. All services read its parts in the same way.

mod members;
mod settings;

pub(crate) use self::members::{Member, ServiceUrl, User, addresses, decoded};
pub(crate) use self::settings::UrlSettings;

/// A URL can't be used. It displays as the reason, without a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidUrl(String);

impl InvalidUrl {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// Says before the reason what the URL is, and after it what one looks like.
    pub(crate) fn within(self, subject: &str, example: &str) -> Self {
        Self(format!("{subject}: {self}; a URL looks like {example}"))
    }
}

//! The settings of a URL that name the certificates of encrypted connections.

use super::UnusableFile;
use crate::service_url::{InvalidUrl, UrlSettings};

const AUTHORITY: &str = "tls-ca";
const CERTIFICATE: &str = "tls-cert";
const KEY: &str = "tls-key";

/// The files of certificates that a URL names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The authority to trust instead of the system's.
    pub(super) authority: Option<String>,
    /// The client's certificate.
    pub(super) certificate: Option<String>,
    /// The client's key.
    pub(super) key: Option<String>,
}

/// The settings can't be used. It displays as the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidSettings(String);

impl Settings {
    /// The names of the settings.
    #[cfg(any(feature = "etcd", feature = "zookeeper"))]
    pub(crate) const NAMES: [&str; 3] = [AUTHORITY, CERTIFICATE, KEY];

    /// Takes them from the settings of a URL.
    pub(crate) fn from_url(settings: &UrlSettings) -> Self {
        let file = |name| settings.get(name).map(str::to_owned);
        Self { authority: file(AUTHORITY), certificate: file(CERTIFICATE), key: file(KEY) }
    }

    /// Parses the part of a URL behind its `?`, which has no other settings.
    #[cfg(any(feature = "etcd", feature = "zookeeper"))]
    pub(crate) fn parse(query: &str) -> Result<Self, InvalidSettings> {
        let settings = UrlSettings::parse(query);
        settings.check_known(&Self::NAMES)?;
        if let Some(name) = settings.repeated() {
            return Err(InvalidSettings(format!("`{name}` is given twice")));
        }
        Ok(Self::from_url(&settings))
    }
}

impl InvalidSettings {
    pub(super) fn incomplete() -> Self {
        Self(format!("{CERTIFICATE} and {KEY} belong together"))
    }

    pub(super) fn authority(error: &UnusableFile) -> Self {
        Self(format!("{AUTHORITY}: {error}"))
    }

    pub(super) fn certificate(error: &UnusableFile) -> Self {
        Self(format!("{CERTIFICATE}: {error}"))
    }

    pub(super) fn key(error: &UnusableFile) -> Self {
        Self(format!("{KEY}: {error}"))
    }
}

impl From<InvalidUrl> for InvalidSettings {
    fn from(invalid: InvalidUrl) -> Self {
        Self(invalid.to_string())
    }
}

//! The settings of a URL that name the certificates of encrypted connections.

use super::UnusableFile;
use crate::service_url::{InvalidUrl, UrlSettings};

const AUTHORITY: &str = "tls-ca";
const CERTIFICATE: &str = "tls-cert";
const KEY: &str = "tls-key";

/// The files of certificates that a URL names.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The authority to trust instead of the system's.
    pub(super) authority: Option<String>,
    /// The client's certificate.
    pub(super) certificate: Option<String>,
    /// The client's key.
    pub(super) key: Option<String>,
}

impl Settings {
    /// The names of the settings.
    #[cfg(any(feature = "etcd", feature = "zookeeper"))]
    pub(crate) const NAMES: [&str; 3] = [AUTHORITY, CERTIFICATE, KEY];

    /// Takes them from the settings of a URL.
    ///
    /// # Errors
    /// [`InvalidUrl`] if one is given twice.
    pub(crate) fn from_url(settings: &UrlSettings) -> Result<Self, InvalidUrl> {
        let file = |name| Ok(settings.get_once(name)?.map(str::to_owned));
        Ok(Self { authority: file(AUTHORITY)?, certificate: file(CERTIFICATE)?, key: file(KEY)? })
    }

    /// Whether the URL names no file.
    #[cfg(any(feature = "etcd", feature = "zookeeper"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.authority.is_none() && self.certificate.is_none() && self.key.is_none()
    }
}

pub(super) fn incomplete() -> InvalidUrl {
    InvalidUrl::new(format!("{CERTIFICATE} and {KEY} belong together"))
}

pub(super) fn unusable_authority(error: &UnusableFile) -> InvalidUrl {
    InvalidUrl::new(format!("{AUTHORITY}: {error}"))
}

pub(super) fn unusable_certificate(error: &UnusableFile) -> InvalidUrl {
    InvalidUrl::new(format!("{CERTIFICATE}: {error}"))
}

pub(super) fn unusable_key(error: &UnusableFile) -> InvalidUrl {
    InvalidUrl::new(format!("{KEY}: {error}"))
}

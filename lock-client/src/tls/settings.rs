//! The settings that name the certificates of encrypted connections.

use super::UnusableFile;
use crate::service_url::{InvalidUrl, UrlSettings};

/// The files of certificates that a URL names: the authority to trust instead of the system's, the
/// client's certificate, and its key.
#[derive(Clone, Debug)]
pub(crate) struct Settings([(&'static str, Option<String>); 3]);

/// One of the settings.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) name: &'static str,
    pub(super) file: Option<&'a str>,
}

impl Settings {
    /// The names of the settings.
    pub(crate) const NAMES: [&str; 3] = ["tls-ca", "tls-cert", "tls-key"];

    /// Takes them from the settings of a URL.
    ///
    /// # Errors
    /// [`InvalidUrl`] if one is given twice.
    pub(crate) fn from_url(settings: &UrlSettings) -> Result<Self, InvalidUrl> {
        let mut named = Self(Self::NAMES.map(|name| (name, None)));
        for (name, file) in &mut named.0 {
            *file = settings.get_once(name)?.map(str::to_owned);
        }
        Ok(named)
    }

    /// Whether the URL names no file.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, file)| file.is_none())
    }

    /// Takes those of a database, which have other names.
    pub(crate) fn new(named: [(&'static str, Option<String>); 3]) -> Self {
        Self(named)
    }

    pub(super) fn each(&self) -> [Setting<'_>; 3] {
        self.0.each_ref().map(|(name, file)| Setting { name, file: file.as_deref() })
    }
}

impl Setting<'_> {
    pub(super) fn unusable(self) -> impl Fn(UnusableFile) -> InvalidUrl {
        move |error| InvalidUrl::new(format!("{}: {error}", self.name))
    }
}

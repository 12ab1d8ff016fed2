//! The settings of a URL that name the certificates of encrypted connections.

use percent_encoding::percent_decode_str;
use rustls::ClientConfig;

use super::{UnusableFile, authorities, certificates, identity, system_authorities, trusting};

const AUTHORITY: &str = "tls-ca";
const CERTIFICATE: &str = "tls-cert";
const KEY: &str = "tls-key";

/// The files of certificates that a URL names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The authority to trust instead of the system's.
    authority: Option<String>,
    /// The client's certificate.
    certificate: Option<String>,
    /// The client's key.
    key: Option<String>,
}

/// The settings can't be used. It displays as the reason.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidSettings(String);

impl InvalidSettings {
    #[cfg(feature = "zookeeper")]
    pub(crate) fn new(reason: String) -> Self {
        Self(reason)
    }
}

impl Settings {
    /// Parses the part of a URL behind its `?`.
    pub(crate) fn parse(query: &str) -> Result<Self, InvalidSettings> {
        let mut settings = Self::default();
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let file = match name {
                AUTHORITY => &mut settings.authority,
                CERTIFICATE => &mut settings.certificate,
                KEY => &mut settings.key,
                _ => {
                    return Err(InvalidSettings(format!(
                        "`{name}` is no setting here; the settings are {AUTHORITY}, {CERTIFICATE} \
                         and {KEY}"
                    )));
                }
            };
            if file.is_some() {
                return Err(InvalidSettings(format!("`{name}` is given twice")));
            }
            let decoded = percent_decode_str(value).decode_utf8();
            let decoded = decoded.map_err(|_| InvalidSettings(format!("{name} is not UTF-8")))?;
            *file = Some(decoded.into_owned());
        }
        Ok(settings)
    }

    /// The files that are named: the authority, and the client's certificate and key.
    pub(crate) fn files(&self) -> [Option<&str>; 3] {
        [&self.authority, &self.certificate, &self.key].map(Option::as_deref)
    }

    /// Reads the files.
    pub(crate) fn read(&self) -> Result<ClientConfig, InvalidSettings> {
        let roots = match &self.authority {
            Some(file) => authorities(file).map_err(of_setting(AUTHORITY))?,
            None => system_authorities(),
        };
        let config = trusting(roots);
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(file)) => {
                let chain = certificates(certificate).map_err(of_setting(CERTIFICATE))?;
                let identity = identity(chain, file).map_err(of_setting(KEY))?;
                Ok(config.with_client_cert_resolver(identity))
            }
            (None, None) => Ok(config.with_no_client_auth()),
            _ => Err(InvalidSettings(format!("{CERTIFICATE} and {KEY} belong together"))),
        }
    }
}

fn of_setting(setting: &'static str) -> impl Fn(UnusableFile) -> InvalidSettings {
    move |error| InvalidSettings(format!("{setting}: {error}"))
}

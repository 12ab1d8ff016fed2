//! The certificates of encrypted connections.

#[cfg(feature = "tls")]
use std::sync::Arc;

use redis::{Client, ConnectionInfo, RedisResult};
#[cfg(feature = "tls")]
use redis::{ClientTlsConfig, TlsCertificates};

use super::url::RedisUrl;
use crate::service_url::InvalidUrl;
#[cfg(feature = "tls")]
use crate::tls;

pub(super) const SETTINGS: [&str; 3] = ["tls-ca", "tls-cert", "tls-key"];

/// The certificates of encrypted connections. Each new connection has those that are on disk at that
/// moment.
#[derive(Clone)]
pub(super) struct Certificates {
    /// `None` if connections are not encrypted.
    #[cfg(feature = "tls")]
    files: Option<tls::Certificates>,
}

#[derive(Clone)]
pub(crate) struct UsedCertificates {
    #[cfg(feature = "tls")]
    files: Option<(tls::Certificates, Arc<tls::Files>)>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// [`InvalidUrl`] if a file can't be used, or the URL is not for encrypted connections.
    pub(super) fn open(url: &RedisUrl<'_>) -> Result<Self, InvalidUrl> {
        let is_named = SETTINGS.iter().any(|name| url.parts.settings.get(name).is_some());
        if is_named && !url.is_encrypted {
            return Err(InvalidUrl::new("certificates are for rediss URLs"));
        }
        #[cfg(feature = "tls")]
        let open = || tls::Certificates::read(tls::named_files(&url.parts.settings)?);
        Ok(Self {
            #[cfg(feature = "tls")]
            files: url.is_encrypted.then(open).transpose()?,
        })
    }

    pub(super) fn current(&self) -> UsedCertificates {
        UsedCertificates {
            #[cfg(feature = "tls")]
            files: self.files.as_ref().map(|files| (files.clone(), files.current())),
        }
    }
}

impl UsedCertificates {
    pub(super) fn client(&self, info: ConnectionInfo) -> RedisResult<Client> {
        #[cfg(feature = "tls")]
        if let Some(certificates) = self.pem() {
            return Client::build_with_tls(info, certificates);
        }
        Client::open(info)
    }

    /// `None` if connections are not encrypted. The system's authorities are given, too: the crate `redis`
    /// would accept none if one can't be read.
    #[cfg(feature = "tls")]
    pub(super) fn pem(&self) -> Option<TlsCertificates> {
        let (_, files) = self.files.as_ref()?;
        let client_tls = files.identity().map(|[certificate, key]| ClientTlsConfig {
            client_cert: certificate.bytes().to_vec(),
            client_key: key.bytes().to_vec(),
        });
        Some(TlsCertificates { client_tls, root_cert: Some(files.authorities()) })
    }

    pub(crate) fn were_renewed(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Some((files, used)) = &self.files {
            return !Arc::ptr_eq(used, &files.recent());
        }
        false
    }
}

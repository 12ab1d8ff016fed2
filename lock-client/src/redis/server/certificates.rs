//! The certificates of encrypted connections.

#[cfg(all(feature = "cluster", feature = "tls"))]
use std::sync::Arc;

use redis::{Client, ConnectionInfo, RedisResult};
#[cfg(feature = "tls")]
use redis::{ClientTlsConfig, TlsCertificates};

use super::url::{InvalidRedisUrl, RedisUrl};
#[cfg(feature = "tls")]
use crate::tls;

/// The names of the settings.
pub(super) const SETTINGS: [&str; 3] = ["tls-ca", "tls-cert", "tls-key"];

/// The certificates that a URL names, if it names any. Each new connection has those that are on disk
/// at that moment.
#[derive(Clone)]
pub(super) struct Certificates {
    #[cfg(feature = "tls")]
    named: Option<tls::Certificates>,
}

/// The certificates of a connection that connects again by itself.
#[cfg(feature = "cluster")]
#[derive(Clone)]
pub(crate) struct UsedCertificates {
    #[cfg(feature = "tls")]
    named: Option<(tls::Certificates, Arc<tls::Files>)>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// [`InvalidRedisUrl`] if a file can't be used, or the URL is not for encrypted connections.
    pub(super) fn open(url: &RedisUrl<'_>) -> Result<Self, InvalidRedisUrl> {
        let is_named = SETTINGS.iter().any(|name| url.parts.settings.get(name).is_some());
        if is_named && !url.is_encrypted {
            return Err(InvalidRedisUrl::new("certificates are for rediss URLs"));
        }
        #[cfg(all(feature = "tls", feature = "zookeeper"))]
        crate::tls::choose_provider();
        #[cfg(feature = "tls")]
        let open = || tls::Certificates::read(tls::Settings::from_url(&url.parts.settings)?);
        Ok(Self {
            #[cfg(feature = "tls")]
            named: is_named.then(open).transpose()?,
        })
    }

    /// Makes a client for a new connection.
    pub(super) fn client(&self, info: ConnectionInfo) -> RedisResult<Client> {
        #[cfg(feature = "tls")]
        if let Some(named) = self.read() {
            return Client::build_with_tls(info, named);
        }
        Client::open(info)
    }

    /// Reads the certificates for a new connection. `None` if the URL names none.
    #[cfg(feature = "tls")]
    pub(super) fn read(&self) -> Option<TlsCertificates> {
        self.named.as_ref().map(|named| pem(&named.current()))
    }

    /// Reads the certificates for a new connection that connects again by itself.
    #[cfg(feature = "cluster")]
    pub(super) fn for_lasting_connection(&self) -> UsedCertificates {
        UsedCertificates {
            #[cfg(feature = "tls")]
            named: self.named.as_ref().map(|named| (named.clone(), named.current())),
        }
    }
}

#[cfg(feature = "cluster")]
impl UsedCertificates {
    #[cfg(feature = "tls")]
    pub(super) fn pem(&self) -> Option<TlsCertificates> {
        self.named.as_ref().map(|(_, used)| pem(used))
    }

    /// Whether those on disk are others now.
    pub(crate) fn were_renewed(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Some((named, used)) = &self.named {
            return !Arc::ptr_eq(used, &named.current());
        }
        false
    }
}

#[cfg(feature = "tls")]
fn pem(files: &tls::Files) -> TlsCertificates {
    let [root_cert, client_cert, client_key] =
        files.pem.each_ref().map(|file| file.as_ref().map(|file| file.bytes().to_vec()));
    let client_tls = client_cert
        .zip(client_key)
        .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    TlsCertificates { client_tls, root_cert }
}

//! The certificates of encrypted connections.

#[cfg(feature = "tls")]
use std::fs;

use redis::{Client, ConnectionInfo, RedisResult};
#[cfg(feature = "tls")]
use redis::{ClientTlsConfig, TlsCertificates};

use super::{query::Query, url::InvalidRedisUrl};

/// The authority to trust.
const AUTHORITY: &str = "tls-ca";
/// The client's certificate.
const CERTIFICATE: &str = "tls-cert";
/// The client's key.
const KEY: &str = "tls-key";
/// All of them.
pub(super) const SETTINGS: [&str; 3] = [AUTHORITY, CERTIFICATE, KEY];

/// The certificates that a URL names, read from their files.
#[derive(Clone)]
pub(super) struct Certificates {
    #[cfg(feature = "tls")]
    pub(super) named: Option<TlsCertificates>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// [`InvalidRedisUrl`] if a file can't be read, or the URL is not for encrypted connections.
    pub(super) fn read(query: &Query, scheme: &str) -> Result<Self, InvalidRedisUrl> {
        let is_named = SETTINGS.iter().any(|name| query.get(name).is_some());
        if is_named && scheme != "rediss" {
            return Err(InvalidRedisUrl::new("certificates are for rediss URLs"));
        }
        #[cfg(all(feature = "tls", feature = "zookeeper"))]
        crate::tls::choose_provider();
        #[cfg(feature = "tls")]
        let client_tls = match (file(query, CERTIFICATE)?, file(query, KEY)?) {
            (Some(client_cert), Some(client_key)) => {
                Some(ClientTlsConfig { client_cert, client_key })
            }
            (None, None) => None,
            _ => {
                let reason = format!("{CERTIFICATE} and {KEY} belong together");
                return Err(InvalidRedisUrl::new(reason));
            }
        };
        Ok(Self {
            #[cfg(feature = "tls")]
            named: match file(query, AUTHORITY)? {
                None if client_tls.is_none() => None,
                root_cert => Some(TlsCertificates { client_tls, root_cert }),
            },
        })
    }

    /// Makes a client that uses the certificates.
    pub(super) fn client(&self, info: ConnectionInfo) -> RedisResult<Client> {
        #[cfg(feature = "tls")]
        if let Some(named) = &self.named {
            return Client::build_with_tls(info, named.clone());
        }
        Client::open(info)
    }
}

#[cfg(feature = "tls")]
fn file(query: &Query, name: &str) -> Result<Option<Vec<u8>>, InvalidRedisUrl> {
    let Some(path) = query.get(name) else { return Ok(None) };
    let read = fs::read(path);
    let invalid = |error| InvalidRedisUrl::new(format!("{name}: can't read {path}: {error}"));
    read.map(Some).map_err(invalid)
}

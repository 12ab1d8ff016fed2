//! The certificates of encrypted connections.

use std::{fs, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::TlsConnector;

use super::server::{InvalidZooKeeperUrl, decoded};

const AUTHORITY: &str = "tls-ca";
const CERTIFICATE: &str = "tls-cert";
const KEY: &str = "tls-key";

/// The files of certificates that a URL names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// The authority to trust instead of the system's.
    authority: Option<String>,
    /// The client's certificate.
    certificate: Option<String>,
    /// The client's key.
    key: Option<String>,
}

impl Settings {
    /// Parses the part of a URL behind its `?`.
    pub(super) fn parse(query: &str) -> Result<Self, InvalidZooKeeperUrl> {
        let mut settings = Self::default();
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let file = match name {
                AUTHORITY => &mut settings.authority,
                CERTIFICATE => &mut settings.certificate,
                KEY => &mut settings.key,
                _ => return Err(InvalidZooKeeperUrl::new(format!("`{name}` is no setting here"))),
            };
            *file = Some(decoded(value)?);
        }
        Ok(settings)
    }

    /// Reads the files.
    pub(super) fn read(&self) -> Result<TlsConnector, InvalidZooKeeperUrl> {
        let mut roots = RootCertStore::empty();
        match &self.authority {
            Some(file) => {
                for certificate in certificates(AUTHORITY, file)? {
                    roots.add(certificate).map_err(|error| unusable(AUTHORITY, file, error))?;
                }
            }
            // Without any, each connection fails with an unknown issuer.
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        // The provider is named, because a program with two of them has no default.
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has the ciphers of all versions")
            .with_root_certificates(roots);
        let config = match (&self.certificate, &self.key) {
            (Some(certificate), Some(file)) => {
                let chain = certificates(CERTIFICATE, certificate)?;
                let key = PrivateKeyDer::from_pem_slice(&read(KEY, file)?);
                let key = key.map_err(|error| unusable(KEY, file, error))?;
                let config = config.with_client_auth_cert(chain, key);
                config.map_err(|error| unusable(KEY, file, error))?
            }
            (None, None) => config.with_no_client_auth(),
            _ => {
                let reason = format!("{CERTIFICATE} and {KEY} belong together");
                return Err(InvalidZooKeeperUrl::new(reason));
            }
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

fn certificates(
    setting: &str,
    file: &str,
) -> Result<Vec<CertificateDer<'static>>, InvalidZooKeeperUrl> {
    let pem = read(setting, file)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(InvalidZooKeeperUrl::new(format!("{setting}: {file} has no certificate"))),
    }
}

fn read(setting: &str, file: &str) -> Result<Vec<u8>, InvalidZooKeeperUrl> {
    let unreadable =
        |error| InvalidZooKeeperUrl::new(format!("{setting}: can't read {file}: {error}"));
    fs::read(file).map_err(unreadable)
}

fn unusable(setting: &str, file: &str, error: impl std::fmt::Display) -> InvalidZooKeeperUrl {
    InvalidZooKeeperUrl::new(format!("{setting}: {file}: {error}"))
}

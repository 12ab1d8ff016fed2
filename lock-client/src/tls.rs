//! Encrypted connections: the certificates that a client trusts.

mod authorities;
mod certificates;
mod live;

use std::{fs, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier,
    client::ResolvesClientCert,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    sign::{CertifiedKey, SingleCertAndKey},
};

use self::authorities::Authorities;
pub(crate) use self::certificates::{Certificates, Files, NamedFiles, named_files};
use crate::service_url::InvalidUrl;

/// Chooses ring for clients that name no provider of cryptography. The client of ZooKeeper brings another
/// one, and a program with two of them has no default. One that the program has chosen stays.
pub(crate) fn choose_provider() {
    if cfg!(feature = "zookeeper") {
        let _ = ring::default_provider().install_default();
    }
}

/// Begins the settings of a client.
fn builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    // The provider is named, because a program with two of them has no default.
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the ciphers of all versions")
}

/// The settings of a client that makes no encrypted connection.
pub(crate) fn unencrypted() -> ClientConfig {
    builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth()
}

/// The certificate that a client shows to servers which ask for one, and those between it and the
/// authority.
type Identity = Arc<dyn ResolvesClientCert>;

/// A PEM file that a setting names, and what it contained when it was read. The errors name both.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PemFile {
    setting: &'static str,
    path: String,
    bytes: Vec<u8>,
}

impl PemFile {
    fn read(setting: &'static str, path: &str) -> Result<Self, InvalidUrl> {
        let unreadable = |error| format!("{setting}: can't read {path}: {error}");
        let bytes = fs::read(path).map_err(|error| InvalidUrl::new(unreadable(error)))?;
        Ok(Self { setting, path: path.to_owned(), bytes })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, InvalidUrl> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match certificates {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            _ => Err(self.unusable(" has no certificate")),
        }
    }

    /// A client's certificate, with its key, which is in this file.
    fn identity(&self, chain: Vec<CertificateDer<'static>>) -> Result<Identity, InvalidUrl> {
        let key = PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| match error {
            pem::Error::NoItemsFound => self.unusable(": it has no key"),
            error => self.unusable(&format!(": {error}")),
        })?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let certified = certified.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                self.unusable(": it is not the key of the certificate")
            }
            error => self.unusable(&format!(": {error}")),
        })?;
        Ok(Arc::new(SingleCertAndKey::from(certified)))
    }

    fn unusable(&self, reason: &str) -> InvalidUrl {
        InvalidUrl::new(format!("{}: {}{reason}", self.setting, self.path))
    }
}

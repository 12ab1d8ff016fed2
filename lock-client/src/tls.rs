//! Encrypted connections: the certificates that a client trusts.

mod authorities;
mod certificates;
mod live;
mod settings;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier,
    client::ResolvesClientCert,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    sign::{CertifiedKey, SingleCertAndKey},
};

use self::authorities::Authorities;
pub(crate) use self::{
    certificates::{Certificates, Files},
    settings::Settings,
};

/// Chooses ring for clients that name no provider of cryptography. The client of ZooKeeper brings another
/// one, and a program with two of them has no default. One that the program has chosen stays.
pub(crate) fn choose_provider() {
    if cfg!(feature = "zookeeper") {
        let _ = ring::default_provider().install_default();
    }
}

/// A file can't be used. It displays as the reason, with the file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UnusableFile(String);

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

/// A PEM file, and what it contained when it was read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PemFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl PemFile {
    pub(crate) fn read(path: impl AsRef<Path>) -> Result<Self, UnusableFile> {
        let path = path.as_ref();
        let bytes = fs::read(path)
            .map_err(|error| UnusableFile(format!("can't read {}: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), bytes })
    }

    /// What the file contained.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, UnusableFile> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match certificates {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            _ => Err(UnusableFile(format!("{} has no certificate", self.path.display()))),
        }
    }

    /// The authorities in the file.
    pub(crate) fn authorities(&self) -> Result<RootCertStore, UnusableFile> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots.add(certificate).map_err(|error| self.unusable(&error.to_string()))?;
        }
        Ok(roots)
    }

    /// A client's certificate, with its key, which is in this file.
    pub(crate) fn identity(
        &self,
        chain: Vec<CertificateDer<'static>>,
    ) -> Result<Identity, UnusableFile> {
        let key = PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| match error {
            pem::Error::NoItemsFound => self.unusable("it has no key"),
            error => self.unusable(&error.to_string()),
        })?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let certified = certified.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                self.unusable("it is not the key of the certificate")
            }
            error => self.unusable(&error.to_string()),
        })?;
        Ok(Arc::new(SingleCertAndKey::from(certified)))
    }

    fn unusable(&self, reason: &str) -> UnusableFile {
        UnusableFile(format!("{}: {reason}", self.path.display()))
    }
}

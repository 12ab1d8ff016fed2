//! Encrypted connections: the certificates that a client trusts.

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod settings;

use std::{fs, path::Path, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore,
    client::WantsClientCert,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
pub(crate) use self::settings::{InvalidSettings, Settings};

/// A file can't be used. It displays as the reason, with the file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UnusableFile(String);

impl UnusableFile {
    fn new(file: impl AsRef<Path>, reason: String) -> Self {
        Self(format!("{}: {reason}", file.as_ref().display()))
    }
}

/// Begins the settings of a client that trusts these authorities.
pub(crate) fn trusting(roots: RootCertStore) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    // The provider is named, because a program with two of them has no default.
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the ciphers of all versions")
        .with_root_certificates(roots)
}

/// Reads the authorities in a file.
pub(crate) fn authorities(file: impl AsRef<Path>) -> Result<RootCertStore, UnusableFile> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&file)? {
        let added = roots.add(certificate);
        added.map_err(|error| UnusableFile::new(&file, error.to_string()))?;
    }
    Ok(roots)
}

/// Reads the system's authorities. Without any, each connection fails with an unknown issuer.
pub(crate) fn system_authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn certificates(file: impl AsRef<Path>) -> Result<Vec<CertificateDer<'static>>, UnusableFile> {
    let pem = read(&file)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(UnusableFile(format!("{} has no certificate", file.as_ref().display()))),
    }
}

fn read(file: impl AsRef<Path>) -> Result<Vec<u8>, UnusableFile> {
    fs::read(&file)
        .map_err(|error| UnusableFile(format!("can't read {}: {error}", file.as_ref().display())))
}

//! Encrypted connections: the certificates that a client trusts.

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod settings;

use std::{fs, path::Path, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore,
    client::{ResolvesClientCert, WantsClientCert},
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    sign::{CertifiedKey, SingleCertAndKey},
};

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
pub(crate) use self::settings::{InvalidSettings, Settings};

/// Chooses ring for clients that name no provider of cryptography. The client of ZooKeeper brings another
/// one, and a program with two of them has no default. One that the program has chosen stays.
#[cfg(feature = "zookeeper")]
pub(crate) fn choose_provider() {
    let _ = ring::default_provider().install_default();
}

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
pub(crate) fn trusting(
    roots: impl Into<Arc<RootCertStore>>,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    // The provider is named, because a program with two of them has no default.
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the ciphers of all versions")
        .with_root_certificates(roots)
}

/// The certificate that a client shows to servers which ask for one, and those between it and the
/// authority.
pub(crate) type Identity = Arc<dyn ResolvesClientCert>;

/// Reads the key of a client's certificate.
pub(crate) fn identity(
    chain: Vec<CertificateDer<'static>>,
    key_file: impl AsRef<Path>,
) -> Result<Identity, UnusableFile> {
    let unusable = |reason: &str| UnusableFile::new(&key_file, reason.to_owned());
    let key = PrivateKeyDer::from_pem_slice(&read(&key_file)?).map_err(|error| match error {
        pem::Error::NoItemsFound => unusable("it has no key"),
        error => unusable(&error.to_string()),
    })?;
    let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
    let certified = certified.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => unusable("it is not the key of the certificate"),
        error => unusable(&error.to_string()),
    })?;
    Ok(Arc::new(SingleCertAndKey::from(certified)))
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

pub(crate) fn certificates(
    file: impl AsRef<Path>,
) -> Result<Vec<CertificateDer<'static>>, UnusableFile> {
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

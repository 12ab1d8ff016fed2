//! Encrypted connections.

use std::{fs, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore,
    client::WantsClientCert,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use super::server::{InvalidEtcdUrl, decoded};

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
    pub(super) fn parse(query: &str) -> Result<Self, InvalidEtcdUrl> {
        let mut settings = Self::default();
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let file = match name {
                AUTHORITY => &mut settings.authority,
                CERTIFICATE => &mut settings.certificate,
                KEY => &mut settings.key,
                _ => return Err(InvalidEtcdUrl::new(format!("`{name}` is no setting here"))),
            };
            *file = Some(decoded(value)?);
        }
        Ok(settings)
    }

    /// Reads the files.
    pub(super) fn read(&self) -> Result<ClientConfig, InvalidEtcdUrl> {
        let invalid = |error: rustls::Error| InvalidEtcdUrl::new(error.to_string());
        let roots = match &self.authority {
            Some(file) => authorities(file)?,
            None => system_authorities(),
        };
        let config = trusting(roots);
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let chain = certificates(CERTIFICATE, certificate)?;
                let pem = read(KEY, key)?;
                let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
                    InvalidEtcdUrl::new(format!("{KEY}: {key} has no usable key: {error}"))
                })?;
                config.with_client_auth_cert(chain, key).map_err(invalid)
            }
            (None, None) => Ok(config.with_no_client_auth()),
            _ => Err(InvalidEtcdUrl::new(format!("{CERTIFICATE} and {KEY} belong together"))),
        }
    }
}

/// The settings of a client that makes no encrypted connections.
pub(super) fn for_plain_connections() -> ClientConfig {
    trusting(RootCertStore::empty()).with_no_client_auth()
}

fn trusting(roots: RootCertStore) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    // It is named here, because a program with two providers has no default.
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the ciphers of all versions")
        .with_root_certificates(roots)
}

fn authorities(file: &str) -> Result<RootCertStore, InvalidEtcdUrl> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(AUTHORITY, file)? {
        roots
            .add(certificate)
            .map_err(|error| InvalidEtcdUrl::new(format!("{AUTHORITY}: {file}: {error}")))?;
    }
    Ok(roots)
}

/// Without any, each connection fails with an unknown issuer.
fn system_authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn certificates(setting: &str, file: &str) -> Result<Vec<CertificateDer<'static>>, InvalidEtcdUrl> {
    let pem = read(setting, file)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(InvalidEtcdUrl::new(format!("{setting}: {file} has no certificate"))),
    }
}

fn read(setting: &str, file: &str) -> Result<Vec<u8>, InvalidEtcdUrl> {
    fs::read(file).map_err(|error| InvalidEtcdUrl::unreadable(setting, file, &error))
}

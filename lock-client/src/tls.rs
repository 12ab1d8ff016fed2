//! The certificates of encrypted connections, which settings of a URL name.

use std::{fmt, fs, sync::Arc};

use percent_encoding::percent_decode_str;
use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore,
    client::WantsClientCert,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

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
                _ => return Err(InvalidSettings(format!("`{name}` is no setting here"))),
            };
            let decoded = percent_decode_str(value).decode_utf8();
            let decoded = decoded.map_err(|_| InvalidSettings(format!("{name} is not UTF-8")))?;
            *file = Some(decoded.into_owned());
        }
        Ok(settings)
    }

    /// Reads the files.
    pub(crate) fn read(&self) -> Result<ClientConfig, InvalidSettings> {
        let roots = match &self.authority {
            Some(file) => authorities(file)?,
            None => system_authorities(),
        };
        let config = trusting(roots);
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(file)) => {
                let chain = certificates(CERTIFICATE, certificate)?;
                let key = PrivateKeyDer::from_pem_slice(&read(KEY, file)?);
                let key = key.map_err(|error| unusable(KEY, file, error))?;
                let config = config.with_client_auth_cert(chain, key);
                config.map_err(|error| unusable(KEY, file, error))
            }
            (None, None) => Ok(config.with_no_client_auth()),
            _ => Err(InvalidSettings(format!("{CERTIFICATE} and {KEY} belong together"))),
        }
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

fn authorities(file: &str) -> Result<RootCertStore, InvalidSettings> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(AUTHORITY, file)? {
        roots.add(certificate).map_err(|error| unusable(AUTHORITY, file, error))?;
    }
    Ok(roots)
}

/// Without any, each connection fails with an unknown issuer.
fn system_authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn certificates(
    setting: &str,
    file: &str,
) -> Result<Vec<CertificateDer<'static>>, InvalidSettings> {
    let pem = read(setting, file)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(InvalidSettings(format!("{setting}: {file} has no certificate"))),
    }
}

fn read(setting: &str, file: &str) -> Result<Vec<u8>, InvalidSettings> {
    fs::read(file)
        .map_err(|error| InvalidSettings(format!("{setting}: can't read {file}: {error}")))
}

fn unusable(setting: &str, file: &str, error: impl fmt::Display) -> InvalidSettings {
    InvalidSettings(format!("{setting}: {file}: {error}"))
}

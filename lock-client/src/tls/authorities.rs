//! The authorities whose certificates are trusted.

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::{RootCertStore, pki_types::CertificateDer};
use rustls_native_certs::{CertificateResult, load_native_certs};

use super::PemFile;
use crate::service_url::InvalidUrl;

/// The authorities that a file names, or that the system trusts.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Authorities(Vec<CertificateDer<'static>>);

impl Authorities {
    pub(super) fn from_file(file: &PemFile) -> Result<Self, InvalidUrl> {
        let certificates = file.certificates()?;
        for certificate in &certificates {
            let added = RootCertStore::empty().add(certificate.clone());
            added.map_err(|error| file.unusable(&format!(": {error}")))?;
        }
        Ok(Self(certificates))
    }

    /// Those that the system trusts, or that `SSL_CERT_FILE` names; and if not all could be read, why.
    /// Without any, each connection fails with an unknown issuer.
    pub(super) fn of_the_system() -> (Self, Option<String>) {
        Self::from_read(load_native_certs())
    }

    fn from_read(read: CertificateResult) -> (Self, Option<String>) {
        let mut certificates = read.certs;
        // Some systems have old ones that `rustls` can't use.
        certificates.retain(|certificate| RootCertStore::empty().add(certificate.clone()).is_ok());
        (Self(certificates), read.errors.last().map(ToString::to_string))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn includes(&self, others: &Self) -> bool {
        others.0.iter().all(|other| self.0.contains(other))
    }

    pub(super) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.0.iter().cloned());
        roots
    }

    pub(super) fn pem(&self) -> Vec<u8> {
        let pem = self.0.iter().map(|certificate| {
            let text = BASE64_STANDARD.encode(certificate);
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        });
        pem.collect::<String>().into_bytes()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{fs, path::Path};

    use rustls_native_certs::load_certs_from_paths;
    use testbed::Authority;

    use super::*;

    /// Reads a file as that of the system's authorities.
    pub(in crate::tls) fn read_as_the_system(file: &Path) -> (Authorities, Option<String>) {
        Authorities::from_read(load_certs_from_paths(Some(file), None))
    }

    #[test]
    fn authorities_that_can_be_read_are_used_though_others_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let authority = fs::read(Authority::new().unwrap().ca_file()).unwrap();
        fs::write(&file, [&authority[..], &authority[..100]].concat()).unwrap();
        let (read, error) = read_as_the_system(&file);
        assert!(read.roots().len() == 1 && error.is_some());
    }
}

//! The authorities that the system trusts.

#[cfg(any(feature = "mariadb", feature = "postgres", feature = "tls", feature = "zookeeper"))]
use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::{RootCertStore, pki_types::CertificateDer};
use rustls_native_certs::{CertificateResult, load_native_certs};

use crate::service_url::InvalidUrl;

/// The authorities that the system trusts, or those that `SSL_CERT_FILE` names.
#[derive(PartialEq, Eq)]
pub(crate) struct SystemAuthorities {
    certificates: Vec<CertificateDer<'static>>,
    /// Why others could not be read.
    errors: Vec<String>,
}

impl SystemAuthorities {
    /// Reads them. Without any, each connection fails with an unknown issuer.
    pub(crate) fn read() -> Self {
        load_native_certs().into()
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.certificates.iter().cloned());
        roots
    }

    /// Checks that what could be read for the last ones could be read again. A file may be only half
    /// written.
    ///
    /// # Errors
    /// [`InvalidUrl`] with the reason.
    pub(super) fn check_after(&self, last: &Self) -> Result<(), InvalidUrl> {
        let reason = match self.errors.last() {
            Some(error) if self.errors.len() > last.errors.len() => error.as_str(),
            // A file is empty before it is written.
            _ if self.certificates.is_empty() && !last.certificates.is_empty() => "there are none",
            _ => return Ok(()),
        };
        Err(InvalidUrl::new(format!("the system's authorities: {reason}")))
    }

    #[cfg(any(feature = "mariadb", feature = "postgres", feature = "tls", feature = "zookeeper"))]
    pub(super) fn pem(&self) -> Vec<u8> {
        let pem = self.certificates.iter().map(|certificate| {
            let text = BASE64_STANDARD.encode(certificate);
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        });
        pem.collect::<String>().into_bytes()
    }
}

impl From<CertificateResult> for SystemAuthorities {
    fn from(read: CertificateResult) -> Self {
        let mut certificates = read.certs;
        // Some systems have old ones that `rustls` can't use.
        certificates.retain(|certificate| RootCertStore::empty().add(certificate.clone()).is_ok());
        Self { certificates, errors: read.errors.iter().map(ToString::to_string).collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustls_native_certs::load_certs_from_paths;
    use testbed::Authority;

    use super::*;

    #[test]
    fn file_that_is_half_written_is_not_taken_for_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let authorities = [(); 2].map(|()| fs::read(Authority::new().unwrap().ca_file()).unwrap());
        let written = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            SystemAuthorities::from(load_certs_from_paths(Some(&file), None))
        };
        let whole = authorities.concat();
        let last = written(&authorities[0]);
        for half in [&whole[..whole.len() - 40], &authorities[1][..100], b""] {
            assert!(written(half).check_after(&last).is_err(), "{} bytes", half.len());
        }
        fs::remove_file(&file).unwrap();
        let missing = SystemAuthorities::from(load_certs_from_paths(Some(&file), None));
        assert!(missing.check_after(&last).is_err());
        // The control, and a file that was as bad before.
        written(&whole).check_after(&last).unwrap();
        let bad = written(&authorities[1][..100]);
        written(&whole[..whole.len() - 40]).check_after(&bad).unwrap();
        assert_eq!(written(&whole).roots().len(), 2);
    }
}

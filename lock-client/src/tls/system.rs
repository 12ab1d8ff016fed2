//! The authorities that the system trusts.

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::{RootCertStore, pki_types::CertificateDer};
use rustls_native_certs::{CertificateResult, load_native_certs};

/// The authorities that the system trusts, or those that `SSL_CERT_FILE` names.
#[derive(Clone, PartialEq, Eq)]
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

    /// Adds the last ones that are missing, if not all could be read: a file may be only half written, or
    /// empty before it is written. New ones are used all the same, because a file may be unreadable for
    /// good.
    pub(super) fn after(mut self, last: &Self) -> Self {
        if self.errors.is_empty() && !self.certificates.is_empty() {
            return self;
        }
        let missing = last.certificates.iter().filter(|last| !self.certificates.contains(last));
        let missing: Vec<_> = missing.cloned().collect();
        if !missing.is_empty() {
            let reason = self.errors.last().map_or("there are none", String::as_str);
            tracing::warn!(
                reason,
                "not all of the system's authorities could be read again: the last ones are kept"
            );
            self.certificates.extend(missing);
        }
        self
    }

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
    fn authorities_that_cannot_be_read_again_are_kept() {
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
            let kept = written(half).after(&last);
            assert!(kept.certificates == last.certificates, "{} bytes", half.len());
        }
        fs::remove_file(&file).unwrap();
        let missing = SystemAuthorities::from(load_certs_from_paths(Some(&file), None));
        let kept = missing.after(&last);
        assert!(kept.certificates == last.certificates);
        // A part of the file stays unreadable. New authorities are used all the same.
        let renewed = [&authorities[1], &authorities[0][..100]].concat();
        let renewed = written(&renewed).after(&kept);
        assert_eq!(renewed.roots().len(), 2);
        // The control: one that is taken out is trusted no more.
        let replaced = written(&authorities[1]).after(&renewed);
        assert!(replaced.certificates != last.certificates && replaced.roots().len() == 1);
    }
}

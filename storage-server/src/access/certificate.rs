//! The names of clients in their certificates, which an authority has signed.

use std::{str::FromStr, sync::Arc};

use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use webpki::EndEntityCert;

/// A name of a client: a DNS name or a URI, as a certificate has it among its subject alternative
/// names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(try_from = "String")]
pub(crate) struct CertificateName(String);

impl FromStr for CertificateName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.to_owned().try_into()
    }
}

impl TryFrom<String> for CertificateName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        // A wildcard names many clients.
        if text.is_empty() || text.contains('*') {
            return Err("certificate-san must be a DNS name or a URI, without a wildcard");
        }
        Ok(Self(text))
    }
}

/// All names of a client in its certificate.
#[derive(Clone, Debug)]
pub(crate) struct CertificateNames(Arc<[String]>);

impl CertificateNames {
    /// Reads the names in a certificate, which must be verified.
    pub(crate) fn from_certificate(certificate: &CertificateDer<'_>) -> Self {
        let certificate = EndEntityCert::try_from(certificate).expect("it was verified");
        let names = certificate.valid_dns_names().chain(certificate.valid_uri_names());
        Self(names.map(str::to_owned).collect())
    }

    pub(crate) fn contains(&self, name: &CertificateName) -> bool {
        self.0.contains(&name.0)
    }
}

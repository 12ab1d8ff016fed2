//! The options of TLS.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use super::require_file;
use crate::tls::{ClientCertificates, Tls, TlsFiles};

#[derive(Debug, Args)]
pub(super) struct TlsArguments {
    /// The server's certificate as PEM, and those between it and its authority. With it, the server
    /// speaks https only.
    #[arg(long, env = "FENCED_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The key of the server's certificate as PEM.
    #[arg(long, env = "FENCED_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// The authority of clients' certificates as PEM. Clients must have a certificate of it, or may
    /// have one if there is an auth file.
    #[arg(long, env = "FENCED_TLS_CLIENT_CA", value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
}

impl TlsArguments {
    /// Whether clients have to prove that they have a certificate.
    pub(super) fn authenticates(&self) -> bool {
        self.tls_client_ca.is_some()
    }

    /// Reads the files. With an auth file, clients may have bearer tokens instead of certificates.
    pub(super) async fn open(self, has_auth_file: bool) -> anyhow::Result<Option<Tls>> {
        let (certificate, key) = match (self.tls_cert, self.tls_key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) if self.tls_client_ca.is_none() => return Ok(None),
            (None, None) => bail!("--tls-client-ca needs --tls-cert and --tls-key"),
            (Some(_), None) => bail!("--tls-cert needs --tls-key"),
            (None, Some(_)) => bail!("--tls-key needs --tls-cert"),
        };
        require_file("--tls-cert", &certificate)?;
        require_file("--tls-key", &key)?;
        if let Some(authority) = &self.tls_client_ca {
            require_file("--tls-client-ca", authority)?;
        }
        let client_certificates = match self.tls_client_ca {
            None => ClientCertificates::None,
            Some(authority) if has_auth_file => ClientCertificates::Optional(authority),
            Some(authority) => ClientCertificates::Required(authority),
        };
        Ok(Some(Tls::from_files(TlsFiles { certificate, key, client_certificates }).await?))
    }
}

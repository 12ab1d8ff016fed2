//! The settings of a client's encrypted connections, which read the certificates in each handshake.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        ResolvesClientCert, Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    sign::CertifiedKey,
};

use super::{Certificates, builder};

/// The certificates that are on disk when a connection is made.
#[derive(Debug)]
struct Live {
    certificates: Certificates,
    provider: Arc<CryptoProvider>,
}

impl Certificates {
    /// The settings of connections, each of which has the certificates that are on disk when it is made.
    pub(crate) fn live_config(&self) -> ClientConfig {
        let provider = Arc::new(ring::default_provider());
        let live = Arc::new(Live { certificates: self.clone(), provider });
        let config = builder().dangerous().with_custom_certificate_verifier(live.clone());
        let mut config = config.with_client_cert_resolver(live);
        // A resumed session would not look at the certificates.
        config.resumption = Resumption::disabled();
        config
    }
}

/// It verifies as `rustls` does, with the present authorities.
impl ServerCertVerifier for Live {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let roots = Arc::new(self.certificates.current().roots());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(roots, self.provider.clone()).build();
        // Without an authority, there is none.
        let verifier =
            verifier.map_err(|_| Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        verifier.verify_server_cert(end_entity, intermediates, server, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ResolvesClientCert for Live {
    fn resolve(
        &self,
        authorities: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.certificates.current().certified()?.resolve(authorities, schemes)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

//! A client for requests that no client of ours makes.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, crypto::ring};

/// Makes a client that trusts no certificates, because all our servers speak plain HTTP. The lock
/// client enables a TLS of `reqwest` without a provider of cryptography. So one must be named.
pub(crate) fn http_client() -> reqwest::Client {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the ciphers of all versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let builder = reqwest::Client::builder().tls_backend_preconfigured(config);
    builder.build().expect("the settings fit")
}

//! Certificates that are renewed on disk, while a client uses them.

use std::{fs, path::Path};

use lock_client::backend::{Backend, BackendError};
use testbed::Etcd;

use super::service::{acquired, client, release, secs};
use crate::{lock_service::with_causes, names::name};

const FILES: [&str; 3] = ["ca.pem", "client.pem", "client.key"];

/// Copies the certificates for an etcd to the files of a client.
fn renew(etcd: &Etcd, folder: &Path) {
    let (certificate, key) = etcd.client_certificate();
    for (file, from) in FILES.into_iter().zip([etcd.ca_file(), certificate, key]) {
        fs::copy(from, folder.join(file)).unwrap();
    }
}

/// The second etcd has another authority, so that none of the first certificates serves there.
#[tokio::test]
async fn certificates_are_read_again_for_each_new_connection() {
    let mut first = Etcd::start_mutual_tls().await.unwrap();
    let second = Etcd::start_mutual_tls().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    renew(&first, folder.path());
    let [ca, certificate, key] = FILES.map(|file| folder.path().join(file).display().to_string());
    let locks = client(&format!(
        "etcds://{},{}?tls-ca={ca}&tls-cert={certificate}&tls-key={key}",
        first.address(0),
        second.address(0)
    ));
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    // While they are written, the last good ones are used.
    fs::write(folder.path().join(FILES[1]), "-----BEGIN CERTIFICATE-----").unwrap();
    fs::remove_file(folder.path().join(FILES[2])).unwrap();
    first.restart().await.unwrap();
    assert!(locks.status(&name("r")).await.unwrap().held.is_some());
    assert!(release(&locks, &lock).await);
    // The control: the second etcd takes other certificates.
    first.process(0).kill().unwrap();
    let untrusted = loop {
        match locks.status(&name("r")).await {
            // The connection to the first one has just ended.
            Err(BackendError::Unavailable(_)) => {}
            answer => break with_causes(&answer.unwrap_err()),
        }
    };
    assert!(untrusted.contains("the encrypted connection failed"), "{untrusted}");
    renew(&second, folder.path());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    assert!(release(&locks, &lock).await);
}

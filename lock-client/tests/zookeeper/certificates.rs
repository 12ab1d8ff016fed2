//! Certificates that are renewed on disk while clients run.

use std::fs;

use fence::Holder;
use lock_client::{Order, backend::Backend};
use tempfile::TempDir;
use testbed::{ZooKeeper, wait::until_async};

use super::service::{SOON, acquired, attempt, client, release, secs};
use crate::names::name;

/// The first certificate is another authority's. The second can't be read, and the third is right.
#[tokio::test]
async fn certificates_are_read_again_and_the_last_good_ones_are_kept() {
    let (zookeeper, other) = (
        ZooKeeper::start_mutual_tls().await.unwrap(),
        ZooKeeper::start_mutual_tls().await.unwrap(),
    );
    let folder = TempDir::new().unwrap();
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|file| folder.path().join(file));
    let install = |(from, from_key)| {
        fs::copy(from, &certificate).unwrap();
        fs::copy(from_key, &key).unwrap();
    };
    install(other.client_certificate());
    let url = format!(
        "{}?tls-ca={}&tls-cert={}&tls-key={}",
        zookeeper.url(),
        zookeeper.ca_file().display(),
        certificate.display(),
        key.display()
    );
    let locks = client(&url);
    let tried = attempt(&locks, &Holder::random(), Order::Unordered).await;
    tried.expect_err("the control: the certificate is another authority's");
    install(zookeeper.client_certificate());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    fs::write(&certificate, "half a certificate").unwrap();
    // A status makes another connection.
    let is_held = async || Ok(locks.status(&name("r")).await?.held.is_some());
    until_async(SOON, is_held).await.expect("the last good certificate is used");
    assert!(release(&locks, &lock).await);
}

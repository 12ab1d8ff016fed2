//! Encrypted connections. Each command has its own environment, with the certificates to trust.

use std::process::Command;

use testbed::{Redis, wait::until_async};

use crate::{command::PATIENCE, programs::LOCK_CLIENT};

#[tokio::test]
async fn encrypted_redis_is_used_if_its_certificate_is_trusted() {
    let redis = Redis::start_tls().await.unwrap();
    let (url, ca_file) = (redis.url(), redis.ca_file().unwrap());
    let status = async |ca_file| {
        let mut command = Command::new(LOCK_CLIENT);
        command.args(["status", "r", "--locks", &url]).env("SSL_CERT_FILE", ca_file);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    };
    let trusted = status(ca_file).await;
    assert_eq!(trusted.status.code(), Some(0), "{trusted:?}");
    let other = Redis::start_tls().await.unwrap();
    let rejected_for_its_certificate = async || {
        let distrusted = status(other.ca_file().unwrap()).await;
        assert_eq!(distrusted.status.code(), Some(69), "{distrusted:?}");
        // On a busy machine the handshake may also time out.
        let stderr = String::from_utf8_lossy(&distrusted.stderr).into_owned();
        Ok(stderr.contains("certificate"))
    };
    until_async(PATIENCE, rejected_for_its_certificate).await.unwrap();
}

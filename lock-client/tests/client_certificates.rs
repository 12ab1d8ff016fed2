//! A Redis that asks its clients for certificates, as it does by default if it takes TLS.

use std::{net::TcpListener, time::Duration};

use testbed::{Redis, Sentinels, wait::until_async};

use crate::{
    lock_service::{impatient_locks, lasting, locks, tried, waiting, with_causes},
    names::name,
};

const SOON: Duration = Duration::from_secs(30);

/// The settings of a URL with the certificates for a Redis.
fn certificates(redis: &Redis) -> String {
    let (certificate, key) = redis.client_certificate().unwrap();
    let authority = redis.ca_file().unwrap();
    let [authority, certificate, key] = [&authority, &certificate, &key].map(|file| file.display());
    format!("tls-ca={authority}&tls-cert={certificate}&tls-key={key}")
}

#[tokio::test]
async fn client_with_a_certificate_may_lock() {
    let redis = Redis::start_mutual_tls(&[]).await.unwrap();
    let locks = locks(&format!("{}?{}", redis.url(), certificates(&redis)));
    let lease = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    let waiter = waiting(&redis, &locks, lasting().wait(SOON)).await;
    lease.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();

    // The controls: no certificate, and one of another authority.
    let other = Redis::start_mutual_tls(&[]).await.unwrap();
    let (certificate, key) = other.client_certificate().unwrap();
    let trusted = format!("{}?tls-ca={}", redis.url(), redis.ca_file().unwrap().display());
    let foreign = format!("{trusted}&tls-cert={}&tls-key={}", certificate.display(), key.display());
    for (url, reason) in [(trusted, "CertificateRequired"), (foreign, "UnknownCA")] {
        // On a busy machine the handshake may also time out.
        let rejected_for_its_certificate = async || {
            let rejected =
                impatient_locks(&url).acquire(&name("r"), tried(60_000)).await.unwrap_err();
            Ok(with_causes(&rejected).contains(reason))
        };
        until_async(SOON, rejected_for_its_certificate).await.expect(reason);
    }
}

#[tokio::test]
async fn client_with_a_certificate_may_lock_in_a_cluster() {
    let bus = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let alone = ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-port", &bus];
    let address = ["--cluster-announce-ip", "127.0.0.1"];
    let redis = Redis::start_mutual_tls(&[&alone[..], &address].concat()).await.unwrap();
    let _: () = redis.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    let is_ready = async || {
        let info: String = redis.command(&["CLUSTER", "INFO"]).await?;
        Ok(info.contains("cluster_state:ok"))
    };
    until_async(SOON, is_ready).await.unwrap();
    let url = redis.url().replace("rediss://", "rediss+cluster://");
    let locks = locks(&format!("{url}?{}", certificates(&redis)));
    let lease = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    let waiter = waiting(&redis, &locks, lasting().wait(SOON)).await;
    lease.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn client_with_a_certificate_may_lock_behind_sentinels() {
    let mut world = Sentinels::start_mutual_tls().await.unwrap();
    let url = format!("{}?{}", world.url(), certificates(world.primary()));
    let locks = locks(&url);
    let lease = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    let waiter = waiting(world.primary(), &locks, lasting().wait(SOON)).await;
    lease.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

//! What the metrics say about certificates, and the TLS of the metrics themselves.

use std::{
    net::Ipv4Addr,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use testbed::Authority;
use tokio::io::AsyncWriteExt;

use super::{Client, options};
use crate::{database::Database, logs::is_logged, metrics::value, wire};

#[tokio::test]
async fn metric_has_the_expiry_of_the_certificate() {
    let database = Database::sqlite();
    let authority = Authority::new().unwrap();
    let certificate = authority.sign_for_loopback().unwrap();
    let server = database.serve(&options(&certificate)).await;
    let client = Client::new(&[&authority], None);
    let metrics = client.get(&server, "/metrics").await.unwrap().text();
    let expiry = value(&metrics, "storage_server_tls_certificate_expiry_timestamp_seconds");
    let left = expiry - SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let is_valid_after = |seconds: f64| {
        let mut openssl = Command::new("openssl");
        openssl.args(["x509", "-noout", "-checkend", &format!("{seconds:.0}"), "-in"]);
        openssl.arg(&certificate.certificate).output().unwrap().status.success()
    };
    assert!(is_valid_after(left - 60.0) && !is_valid_after(left + 60.0), "{left}");
}

#[tokio::test]
async fn metrics_that_other_machines_reach_are_encrypted() {
    let database = Database::sqlite();
    let authority = Authority::new().unwrap();
    let certificate = authority.sign_for_loopback().unwrap();
    let client = Client::new(&[&authority], None);
    for (address, scheme) in [("127.0.0.1:0", "http"), ("0.0.0.0:0", "https")] {
        let arguments = [&options(&certificate)[..], &["--metrics-listen", address]].concat();
        let server = database.serve(&arguments).await;
        is_logged(&server, "/metrics").await;
        let log = server.log().unwrap();
        let url = log.split("metrics are on ").nth(1).unwrap().split("/metrics").next().unwrap();
        let (logged, address) = url.split_once("://").unwrap();
        assert_eq!(logged, scheme);
        let port = address.rsplit(':').next().unwrap().parse().unwrap();
        let mut connection = client.connect_to((Ipv4Addr::LOCALHOST, port).into()).await;
        match (scheme, &mut connection) {
            ("https", Ok(connection)) => {
                let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
                connection.write_all(request).await.unwrap();
                assert_eq!(wire::try_answer(connection).await.unwrap().status, 200);
            }
            ("http", Err(_)) => {}
            _ => panic!("{scheme}: {connection:?}"),
        }
    }
}

//! The files of a certificate: they may change, be broken, or have expired.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Instant,
};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value;
use testbed::{Authority, Certificate, wait::until_async};
use tokio::io::AsyncWriteExt;

use super::{Client, PATIENCE, is_rejected, options};
use crate::{access::IN_FORCE, database::Database, logs::is_logged, metrics::value, wire};

const LIVEZ: &[u8] = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn changed_certificate_is_in_force_while_no_request_fails() {
    let [old, new] = [(); 2].map(|()| Authority::new().unwrap());
    let database = Database::sqlite();
    let served =
        Certificate { certificate: database.file("server.pem"), key: database.file("server.key") };
    let replace = |certificate: &Path, key: &Path| {
        fs::copy(certificate, &served.certificate).unwrap();
        fs::copy(key, &served.key).unwrap();
    };
    let before = old.sign_for_loopback().unwrap();
    let after = new.sign_for_loopback().unwrap();
    replace(&before.certificate, &before.key);
    let server = database.serve(&options(&served)).await;
    let client = Client::new(&[&old, &new], None);
    let is_presented = async |certificate: &Certificate| {
        let expected = CertificateDer::from_pem_file(&certificate.certificate).unwrap();
        Ok(client.presented(&server).await == expected)
    };
    assert!(is_presented(&before).await.unwrap());

    let (ended, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    let load = async || {
        while !ended.load(Ordering::Relaxed) {
            assert_eq!(client.get(&server, "/livez").await.unwrap().status, 200);
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    let changes = async {
        // 1. A broken pair changes nothing, and is logged once.
        replace(&after.certificate, &before.key);
        is_logged(&server, "it is not the key of the certificate").await;
        assert!(is_presented(&before).await.unwrap());

        // 2. The other pair is in force for new connections. Those that are open go on.
        let mut open = client.connect(&server).await.unwrap();
        replace(&after.certificate, &after.key);
        let changed = Instant::now();
        until_async(IN_FORCE, async || is_presented(&after).await).await.unwrap();
        assert!(changed.elapsed() < IN_FORCE);
        open.write_all(LIVEZ).await.unwrap();
        assert_eq!(wire::answer(&mut open).await.status, 200);
        ended.store(true, Ordering::Relaxed);
    };
    tokio::join!(load(), load(), changes);
    assert!(answered.load(Ordering::Relaxed) > 0);
    let log = server.log().unwrap();
    assert_eq!(log.matches("it is not the key of the certificate").count(), 1, "{log}");
    // The control: the new certificate is not the old one.
    is_rejected(&Client::new(&[&old], None), &server, "UnknownIssuer").await;
}

#[tokio::test]
async fn server_does_not_start_with_files_that_do_not_fit() {
    let database = Database::sqlite();
    let authority = Authority::new().unwrap();
    let [one, two] = [(); 2].map(|()| authority.sign_for_loopback().unwrap());
    let (empty, missing) = (database.file("empty.pem"), database.file("missing.pem"));
    fs::write(&empty, "").unwrap();
    let no_key = database.file("no_key.pem");
    fs::copy(&one.certificate, &no_key).unwrap();
    fs::set_permissions(&no_key, Permissions::from_mode(0o600)).unwrap();
    let paths = [&one.certificate, &one.key, &two.key, &no_key, &empty, &missing];
    let [certificate, key, other_key, no_key, empty, missing] =
        paths.map(|path| path.to_str().unwrap());
    // A curve that neither browsers nor the server know.
    let curve = database.file("secp256k1.pem");
    let mut openssl = Command::new("openssl");
    openssl.args(["ecparam", "-name", "secp256k1", "-genkey", "-noout", "-out"]).arg(&curve);
    assert!(openssl.status().unwrap().success());
    fs::set_permissions(&curve, Permissions::from_mode(0o600)).unwrap();
    let curve = curve.to_str().unwrap();
    let cases: [(&[&str], &str); 10] = [
        (&["--tls-cert", certificate], "--tls-cert needs --tls-key"),
        (&["--tls-key", key], "--tls-key needs --tls-cert"),
        (&["--tls-client-ca", certificate], "--tls-client-ca needs --tls-cert and --tls-key"),
        (&["--tls-cert", missing, "--tls-key", key], "missing.pem, which does not exist"),
        (&["--tls-cert", certificate, "--tls-key", missing], "missing.pem, which does not exist"),
        (&["--tls-cert", empty, "--tls-key", key], "empty.pem can't be used: it has no certif"),
        (&["--tls-cert", certificate, "--tls-key", no_key], "it has no private key as PEM"),
        (&["--tls-cert", certificate, "--tls-key", other_key], "not the key of the certificate in"),
        (
            &["--tls-cert", certificate, "--tls-key", curve],
            "; use RSA of 2048 to 4096 bits, ECDSA P-256 or P-384, or Ed25519",
        ),
        (
            &["--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", empty],
            "empty.pem can't be used: it has no certificate",
        ),
    ];
    for (options, reason) in cases {
        let arguments = [&["--listen", "127.0.0.1:0"][..], options].concat();
        let ran = database.run(&arguments).await;
        // A file that an option names and that is missing is a wrong option.
        let code = if reason.contains("does not exist") { 2 } else { 1 };
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(reason), "{options:?}: {ran:?}");
    }
}

/// The clients are served as before, so it stays ready.
#[tokio::test]
async fn broken_certificate_is_said_by_readyz_and_by_a_metric() {
    let database = Database::sqlite();
    let authority = Authority::new().unwrap();
    let certificate = authority.sign_for_loopback().unwrap();
    let server = database.serve(&options(&certificate)).await;
    let client = Client::new(&[&authority], None);
    let ready = async || client.get(&server, "/readyz").await.unwrap();
    let is_valid = async || {
        let metrics = client.get(&server, "/metrics").await.unwrap().text();
        value(&metrics, "storage_server_tls_files_valid") == 1.0
    };
    assert_eq!(ready().await.json()["tls_files"], Value::Null);
    assert!(is_valid().await);
    let good = fs::read(&certificate.certificate).unwrap();
    fs::write(&certificate.certificate, "broken").unwrap();
    let says_it = async || Ok(ready().await.json()["tls_files"].is_string());
    until_async(PATIENCE, says_it).await.unwrap();
    let broken = ready().await;
    assert_eq!(broken.status, 200);
    let fault = broken.json()["tls_files"].as_str().unwrap().to_owned();
    assert!(fault.ends_with("can't be used: it has no certificate as PEM"), "{fault}");
    assert!(!is_valid().await);
    fs::write(&certificate.certificate, good).unwrap();
    until_async(PATIENCE, async || Ok(!says_it().await?)).await.unwrap();
    assert!(is_valid().await);
}

/// It does not keep the server from starting: another certificate may be on its way.
#[tokio::test]
async fn expired_certificate_is_logged() {
    let database = Database::sqlite();
    let expired = Certificate { certificate: database.file("c.pem"), key: database.file("k.pem") };
    fs::write(database.file("c.cnf"), "subjectAltName = DNS:localhost").unwrap();
    for command in [
        "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout k.pem -out c.csr",
        "x509 -req -days 0 -extfile c.cnf -in c.csr -key k.pem -out c.pem",
    ] {
        let mut openssl = Command::new("openssl");
        openssl.args(command.split(' ')).current_dir(database.folder.path());
        assert!(openssl.output().unwrap().status.success());
    }
    let authority = Authority::new().unwrap();
    let valid = authority.sign_for_loopback().unwrap();
    for (certificate, is_logged) in [(&expired, true), (&valid, false)] {
        let checked = database.run(&[&options(certificate)[..], &["--check"]].concat()).await;
        assert_eq!(checked.code, Some(0), "{checked:?}");
        assert_eq!(checked.stderr.contains("has expired"), is_logged, "{checked:?}");
    }
}

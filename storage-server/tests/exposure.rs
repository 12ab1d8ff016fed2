//! A server that other machines reach must be protected.

use testbed::{Authority, Certificate, StorageServer};

use crate::{access::Guarded, logs::stop_and_read_log, programs::storage_server};

const ALL_ADDRESSES: &str = "0.0.0.0:0";

#[tokio::test]
async fn server_without_tls_or_authentication_listens_on_loopback_only() {
    let guarded = Guarded::new();
    guarded.identity("all", &["--prefix", "", "--allow", "read"]).await;
    let auth_file = guarded.auth_file();
    let auth = ["--auth-file", auth_file.to_str().unwrap()];
    let authority = Authority::new().unwrap();
    let Certificate { certificate, key } = authority.sign_for_loopback().unwrap();
    let tls = ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let ca_file = authority.ca_file();
    let client_ca = ["--tls-client-ca", ca_file.to_str().unwrap()];

    let rejected: [(&[&[&str]], &str); 3] = [
        (&[], "give --tls-cert, --tls-key and --auth-file, or --insecure"),
        (&[&auth], "give --tls-cert and --tls-key, or --insecure"),
        (&[&tls], "give --auth-file or --tls-client-ca, or --insecure"),
    ];
    for (options, reason) in rejected {
        let arguments = [&["--listen", ALL_ADDRESSES][..], &options.concat()].concat();
        let error = guarded.database.run(&arguments).await.failed();
        assert!(error.contains("other machines can reach 0.0.0.0:"), "{options:?}: {error}");
        assert!(error.contains(reason), "{options:?}: {error}");
        // A check says the same.
        let error = guarded.database.run(&[&arguments[..], &["--check"]].concat()).await.failed();
        assert!(error.contains(reason), "{options:?}: {error}");
    }

    // The controls.
    let insecure: &[&[&str]] = &[&["--insecure"]];
    let accepted: [&[&[&str]]; 3] = [&[&tls, &auth], &[&tls, &client_ca], insecure];
    for options in accepted {
        let arguments = options.concat();
        let program = storage_server();
        let server = StorageServer::start_listening(&program, ALL_ADDRESSES, &arguments);
        let server = server.await.unwrap();
        let log = stop_and_read_log(server).await;
        let has_warned = log.contains("other machines can reach");
        assert_eq!(has_warned, options == insecure, "{options:?}: {log}");
    }
}

#[tokio::test]
async fn metrics_without_tls_are_on_loopback_only() {
    let guarded = Guarded::new();
    let arguments = ["--listen", "127.0.0.1:0", "--metrics-listen", ALL_ADDRESSES];
    for further in [&[][..], &["--check"]] {
        let error = guarded.database.run(&[&arguments[..], further].concat()).await.failed();
        assert!(error.contains("other machines can reach 0.0.0.0:"), "{error}");
        assert!(error.contains("give --tls-cert and --tls-key, or --insecure"), "{error}");
    }
    // The control.
    let insecure = ["--metrics-listen", ALL_ADDRESSES, "--insecure"];
    let server = guarded.database.serve(&insecure).await;
    let log = stop_and_read_log(server).await;
    assert!(log.contains("without --tls-cert and --tls-key"), "{log}");
    guarded.database.run(&[&insecure[..], &["--check"]].concat()).await.printed();
}

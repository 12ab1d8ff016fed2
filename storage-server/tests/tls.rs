//! TLS: the certificates of the server and of its clients.

use std::{
    fs::{self, Permissions},
    io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};
use serde_json::Value;
use testbed::{Authority, Certificate, StorageServer, wait::until_async};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    access::{Guarded, IN_FORCE},
    connections::{OPEN_FOR, is_logged, read_to_end},
    database::Database,
    metrics::value,
    programs::storage_server,
    wire::{self, Answer},
};

const PATIENCE: Duration = Duration::from_secs(20);
const LIVEZ: &[u8] = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The options of a server with this certificate.
fn options(certificate: &Certificate) -> [&str; 4] {
    let Certificate { certificate, key } = certificate;
    ["--tls-cert", certificate.to_str().unwrap(), "--tls-key", key.to_str().unwrap()]
}

/// A client that trusts some authorities, and may have a certificate of its own.
#[derive(Clone)]
struct Client(Arc<ClientConfig>);

impl Client {
    fn new(authorities: &[&Authority], own: Option<&Certificate>) -> Self {
        Self::with_versions(rustls::DEFAULT_VERSIONS, authorities, own)
    }

    fn with_versions(
        versions: &[&'static SupportedProtocolVersion],
        authorities: &[&Authority],
        own: Option<&Certificate>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(CertificateDer::from_pem_file(authority.ca_file()).unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        Self(Arc::new(match own {
            None => config.with_no_client_auth(),
            Some(Certificate { certificate, key }) => config
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_file(certificate).unwrap()],
                    PrivateKeyDer::from_pem_file(key).unwrap(),
                )
                .unwrap(),
        }))
    }

    fn offering(mut self, protocols: &[&str]) -> Self {
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::make_mut(&mut self.0).alpn_protocols = protocols;
        self
    }

    async fn connect(&self, server: &StorageServer) -> io::Result<TlsStream<TcpStream>> {
        self.connect_to(server.address()).await
    }

    async fn connect_to(&self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let handshake = TlsConnector::from(self.0.clone()).connect(name, stream);
        timeout(PATIENCE, handshake).await.expect("the handshake was not answered")
    }

    /// Sends a request without a body on a connection of its own.
    async fn ask(
        &self,
        server: &StorageServer,
        method: &str,
        path: &str,
        headers: &str,
    ) -> io::Result<Answer> {
        let mut connection = self.connect(server).await?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n"
        );
        connection.write_all(request.as_bytes()).await?;
        wire::try_answer(&mut connection).await
    }

    async fn get(&self, server: &StorageServer, path: &str) -> io::Result<Answer> {
        self.ask(server, "GET", path, "").await
    }

    /// The certificate that the server presents.
    async fn presented(&self, server: &StorageServer) -> CertificateDer<'static> {
        let connection = self.connect(server).await.unwrap();
        connection.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    }
}

/// No request is answered, for this reason. The connection may also be reset before the client has
/// read the reason.
async fn is_rejected(client: &Client, server: &StorageServer, reason: &str) {
    let error = async || client.get(server, "/livez").await.unwrap_err().to_string();
    until_async(PATIENCE, async || Ok(error().await.contains(reason))).await.expect(reason);
}

#[tokio::test]
async fn connections_are_encrypted_for_http1_and_http2() {
    let authority = Authority::new().unwrap();
    let certificate = authority.sign_for_loopback().unwrap();
    let server = StorageServer::start(&storage_server(), &options(&certificate)).await.unwrap();
    assert_eq!(server.url(), format!("https://{}", server.address()));
    let client = Client::new(&[&authority], None);
    let written = client.ask(&server, "PUT", "/v1/resources/r", "Fencing-Token: 1\r\n").await;
    assert_eq!(written.unwrap().status, 201);

    for (offered, expected) in
        [(&["h2", "http/1.1"][..], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)]
    {
        let connection = client.clone().offering(offered).connect(&server).await.unwrap();
        let protocol = connection.get_ref().1.alpn_protocol();
        assert_eq!(protocol, expected.map(str::as_bytes), "{offered:?}");
    }
    let connection = client.clone().offering(&["h2"]).connect(&server).await.unwrap();
    let http2 = http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(connection));
    let (mut sender, connection) = http2.await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("https://localhost:{}/livez", server.address().port()));
    let request = request.body(Full::<Bytes>::default()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);

    // The controls: a client that does not encrypt, and one that does not trust the authority.
    let mut plain = TcpStream::connect(server.address()).await.unwrap();
    plain.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut alert = Vec::new();
    timeout(PATIENCE, plain.read_to_end(&mut alert)).await.unwrap().unwrap();
    assert!(!alert.starts_with(b"HTTP"), "{alert:?}");
    let other = Authority::new().unwrap();
    is_rejected(&Client::new(&[&other], None), &server, "UnknownIssuer").await;
    is_logged(&server, "closed connections whose TLS handshake failed").await;
}

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

/// An identity with a name in a certificate, as an entry of the auth file.
fn identity(name: &str, san: &str, prefix: &str) -> String {
    format!(
        "[[identity]]\nname = \"{name}\"\ncertificate-san = \"{san}\"\n\n\
         [[identity.scope]]\nprefixes = [\"{prefix}\"]\nallow = [\"read\"]"
    )
}

#[tokio::test]
async fn names_in_a_certificate_are_an_identity() {
    let guarded = Guarded::new();
    let bearer = guarded.identity("bearer", &["--prefix", "b/", "--allow", "read"]).await;
    for (name, san, prefix) in
        [("dns", "orders.example", "orders/"), ("uri", "spiffe://example/invoices", "invoices/")]
    {
        let arguments = ["--certificate-san", san, "--prefix", prefix, "--allow", "read"];
        let printed = guarded.identity(name, &arguments).await;
        // It has no secret.
        assert_eq!(printed, identity(name, san, prefix));
        assert!(fs::read_to_string(guarded.auth_file()).unwrap().contains(&printed));
    }
    let [authority, other] = [(); 2].map(|()| Authority::new().unwrap());
    let certificate = authority.sign_for_loopback().unwrap();
    let (auth_file, ca_file) = (guarded.auth_file(), authority.ca_file());
    let auth = ["--auth-file", auth_file.to_str().unwrap()];
    let clients = ["--tls-client-ca", ca_file.to_str().unwrap()];
    let arguments = [&options(&certificate)[..], &auth, &clients].concat();
    let server = guarded.database.serve(&arguments).await;

    let client = |names: &str| Client::new(&[&authority], Some(&authority.sign(names).unwrap()));
    let orders = client("DNS:www.example, DNS:orders.example");
    let invoices = client("URI:spiffe://example/invoices");
    let anonymous = Client::new(&[&authority], None);
    let status = async |client: &Client, name: &str, headers: &str| {
        let path = format!("/v1/resources/{name}");
        client.ask(&server, "GET", &path, headers).await.unwrap().status
    };
    let bearer = format!("Authorization: Bearer {bearer}\r\n");
    for (client, name, headers, expected) in [
        (&orders, "orders/1", "", 404),
        (&orders, "invoices/1", "", 403),
        (&invoices, "invoices/1", "", 404),
        (&invoices, "orders/1", "", 403),
        // A certificate that is no identity, and none.
        (&client("DNS:orders.example.org, DNS:*.example"), "orders/1", "", 401),
        (&client("DNS:*.example"), "orders/1", "", 401),
        (&anonymous, "orders/1", "", 401),
        // A bearer token goes before the certificate.
        (&anonymous, "b/1", &bearer, 404),
        (&orders, "b/1", &bearer, 404),
        (&orders, "orders/1", &bearer, 403),
        (&orders, "orders/1", "Authorization: Bearer unknown\r\n", 401),
        // Neither does another kind of credentials fall back to the certificate, which may be that
        // of a gateway.
        (&orders, "orders/1", "Authorization: Bearer \r\n", 401),
        (&orders, "orders/1", "Authorization: Basic dTpw\r\n", 401),
        (&orders, "b/1", &bearer.repeat(2), 401),
    ] {
        assert_eq!(status(client, name, headers).await, expected, "{name} {headers}");
    }

    // The same name from another authority is worth nothing.
    let own = other.sign("DNS:orders.example").unwrap();
    is_rejected(&Client::new(&[&authority], Some(&own)), &server, "UnknownCA").await;
}

#[tokio::test]
async fn without_an_auth_file_clients_must_have_a_certificate() {
    let authority = Authority::new().unwrap();
    let certificate = authority.sign_for_loopback().unwrap();
    let ca_file = authority.ca_file();
    let clients = ["--tls-client-ca", ca_file.to_str().unwrap()];
    let arguments = [&options(&certificate)[..], &clients].concat();
    let server = StorageServer::start(&storage_server(), &arguments).await.unwrap();
    is_rejected(&Client::new(&[&authority], None), &server, "CertificateRequired").await;
    // The control.
    let own = authority.sign("DNS:client.example").unwrap();
    let known = Client::new(&[&authority], Some(&own)).get(&server, "/v1/resources").await;
    assert_eq!(known.unwrap().status, 200);
}

/// A resumed session brings its certificate along, which may have expired since.
#[tokio::test]
async fn client_certificate_is_shown_on_each_connection() {
    let authority = Authority::new().unwrap();
    let certificate = authority.sign_for_loopback().unwrap();
    let own = authority.sign("DNS:client.example").unwrap();
    let ca_file = authority.ca_file();
    let clients = ["--tls-client-ca", ca_file.to_str().unwrap()];
    let guarded = [&options(&certificate)[..], &clients].concat();
    for (arguments, expected) in [
        (&guarded[..], HandshakeKind::Full),
        // The control: there are sessions to resume without these certificates.
        (&options(&certificate), HandshakeKind::Resumed),
    ] {
        let server = StorageServer::start(&storage_server(), arguments).await.unwrap();
        for version in [&TLS12, &TLS13] {
            let client = Client::with_versions(&[version], &[&authority], Some(&own));
            assert_eq!(client.get(&server, "/livez").await.unwrap().status, 200);
            let connection = client.connect(&server).await.unwrap();
            assert_eq!(connection.get_ref().1.handshake_kind(), Some(expected), "{version:?}");
        }
    }
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
    let cases: [(&[&str], &str); 9] = [
        (&["--tls-cert", certificate], "--tls-cert needs --tls-key"),
        (&["--tls-key", key], "--tls-key needs --tls-cert"),
        (&["--tls-client-ca", certificate], "--tls-client-ca needs --tls-cert and --tls-key"),
        (&["--tls-cert", missing, "--tls-key", key], "missing.pem can't be used: No such file"),
        (&["--tls-cert", certificate, "--tls-key", missing], "missing.pem can't be used: No such"),
        (&["--tls-cert", empty, "--tls-key", key], "empty.pem can't be used: it has no certif"),
        (&["--tls-cert", certificate, "--tls-key", no_key], "it has no private key as PEM"),
        (&["--tls-cert", certificate, "--tls-key", other_key], "not the key of the certificate in"),
        (
            &["--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", empty],
            "empty.pem can't be used: it has no certificate",
        ),
    ];
    for (options, reason) in cases {
        let arguments = [&["--listen", "127.0.0.1:0"][..], options].concat();
        let error = database.run(&arguments).await.failed();
        assert!(error.contains(reason), "{options:?}: {error}");
    }
}

/// The handshakes of others are answered meanwhile.
#[tokio::test]
async fn half_handshakes_hold_up_nobody_and_are_closed() {
    let authority = Authority::new().unwrap();
    let certificate = authority.sign_for_loopback().unwrap();
    let server = StorageServer::start(&storage_server(), &options(&certificate)).await.unwrap();
    let client = Client::new(&[&authority], None);
    let begun = Instant::now();
    let mut half = Vec::new();
    for _ in 0..200 {
        let mut connection = TcpStream::connect(server.address()).await.unwrap();
        // The head of a record with a handshake of 512 bytes.
        connection.write_all(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc]).await.unwrap();
        half.push(connection);
    }
    assert_eq!(client.get(&server, "/livez").await.unwrap().status, 200);

    // A client that sends too much of its handshake is closed at once, and the others are not.
    let mut long = TcpStream::connect(server.address()).await.unwrap();
    let record = [&[0x16, 3, 1, 0x40, 0][..], &[1, 0, 0xff, 0xff], &[0; 0x3ffc]].concat();
    // It may be closed before everything is sent.
    let _ = long.write_all(&record.repeat(4)).await;
    let (_, open_for) = read_to_end(&mut long).await;
    assert!(open_for < OPEN_FOR, "it was closed after {open_for:?}");
    is_logged(&server, "closed connections whose TLS handshake failed").await;
    for connection in &mut half {
        read_to_end(connection).await;
    }
    assert!(begun.elapsed() > OPEN_FOR);
    is_logged(&server, "closed connections that sent no whole request").await;
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

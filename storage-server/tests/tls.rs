//! TLS: the certificates of the server and of its clients.

mod client_certificates;
mod files;
mod metrics;

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use testbed::{Authority, Certificate, StorageServer, wait::until_async};
use tokio::{io::AsyncWriteExt, net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    connections::{OPEN_FOR, read_to_end},
    logs::is_logged,
    programs::storage_server,
    wire::{self, Answer},
};

const PATIENCE: Duration = Duration::from_secs(20);

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

    // A client that does not encrypt learns why it gets nothing.
    let mut plain = TcpStream::connect(server.address()).await.unwrap();
    plain.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let told = timeout(PATIENCE, wire::answer(&mut plain)).await.unwrap();
    assert_eq!((told.status, &*told.text()), (400, "this address speaks https only\n"));
    is_logged(&server, "closed connections that spoke plain HTTP").await;
    // The control: one that does not trust the authority.
    let other = Authority::new().unwrap();
    is_rejected(&Client::new(&[&other], None), &server, "UnknownIssuer").await;
    is_logged(&server, "closed connections whose TLS handshake failed").await;
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

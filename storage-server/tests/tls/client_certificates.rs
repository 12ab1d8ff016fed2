//! The certificates of clients, which may be identities.

use std::{fs, time::Duration};

use rustls::{
    HandshakeKind,
    version::{TLS12, TLS13},
};
use testbed::{Authority, StorageServer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::client::TlsStream;

use super::{Client, is_rejected, options};
use crate::{
    access::{Guarded, IN_FORCE},
    database::Database,
    logs::is_logged,
    programs::storage_server,
};

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
    let reason = "rejected the certificate of a client: invalid peer certificate: UnknownIssuer";
    is_logged(&server, &format!("{reason} client=127.0.0.1")).await;
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

/// Otherwise a client could go on for as long as it keeps its connection busy.
#[tokio::test]
async fn connection_ends_when_the_authority_of_its_client_is_removed() {
    let [kept, removed] = [(); 2].map(|()| Authority::new().unwrap());
    let database = Database::sqlite();
    let ca_file = database.file("clients.pem");
    let pem = |authority: &Authority| fs::read_to_string(authority.ca_file()).unwrap();
    fs::write(&ca_file, pem(&kept) + &pem(&removed)).unwrap();
    let certificate = kept.sign_for_loopback().unwrap();
    let clients = ["--tls-client-ca", ca_file.to_str().unwrap()];
    let server = database.serve(&[&options(&certificate)[..], &clients].concat()).await;
    let connect = async |authority: &Authority| {
        let own = authority.sign("DNS:client.example").unwrap();
        Client::new(&[&kept], Some(&own)).connect(&server).await.unwrap()
    };
    let (mut of_kept, mut of_removed) = (connect(&kept).await, connect(&removed).await);
    let livez = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Both are busy, so that they are not closed for being idle.
    let is_open = async |connection: &mut TlsStream<TcpStream>| {
        connection.write_all(livez).await?;
        let mut byte = [0; 1024];
        anyhow::Ok(connection.read(&mut byte).await? > 0)
    };
    assert!(is_open(&mut of_kept).await.unwrap());
    assert!(is_open(&mut of_removed).await.unwrap());

    let new = database.file("new.pem");
    fs::write(&new, pem(&kept)).unwrap();
    fs::rename(&new, &ca_file).unwrap();
    let has_ended = async {
        while is_open(&mut of_removed).await.unwrap_or(false) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(IN_FORCE, has_ended).await.expect("it ends");
    // The control: the other one goes on.
    assert!(is_open(&mut of_kept).await.unwrap());
}

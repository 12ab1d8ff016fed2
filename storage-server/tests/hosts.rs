//! A server on loopback is not reached by pages on the web.

use std::time::Duration;

use tempfile::TempDir;
use testbed::process::Process;

use crate::{
    programs::storage_server,
    wire::{self, Answer},
    world::World,
};

async fn get(url: &str, target: &str, head: &str) -> Answer {
    let request = format!("GET {target} HTTP/1.1\r\n{head}Connection: close\r\n\r\n");
    wire::send(url, request.into_bytes()).await
}

#[tokio::test]
async fn requests_under_the_name_of_a_page_are_rejected() {
    let World { server, .. } = World::on_sqlite(&[]).await;
    for path in ["/livez", "/v1/resources", "/v1/fences/r", "/nothing"] {
        for name in ["evil.example", "evil.example:8034", "localhost.evil.example", "192.0.2.1", ""]
        {
            let answer = get(server.url(), path, &format!("Host: {name}\r\n")).await;
            assert_eq!(answer.problem(), "421 wrong-host", "{path} {name:?}");
        }
        let port = server.address().port();
        for name in ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", &format!("localhost:{port}")] {
            let answer = get(server.url(), path, &format!("Host: {name}\r\n")).await;
            assert_ne!(answer.status, 421, "{path} {name:?}");
        }
    }
    let twice = get(server.url(), "/livez", "Host: localhost\r\nHost: evil.example\r\n").await;
    assert_eq!(twice.status, 421);
    let in_target = get(server.url(), "http://evil.example/livez", "Host: localhost\r\n").await;
    assert_eq!(in_target.status, 421);
    let without = wire::send(server.url(), b"GET /livez HTTP/1.0\r\n\r\n".to_vec()).await;
    assert_eq!(without.status, 200);
}

/// Asks a server that listens on this address, under a name that is not this machine's. Returns the
/// status.
async fn status_under_another_name(listen: &str) -> u16 {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let mut command = storage_server().command();
    command.args(["--listen", listen, "--insecure", "--database-url", "sqlite:fenced.db"]);
    command.current_dir(folder.path());
    let mut process = Process::spawn("storage-server", &command, folder.path()).unwrap();
    let line = process.line(Duration::from_secs(20)).await.unwrap();
    let url = line.strip_prefix("listening on ").unwrap();
    get(url, "/livez", "Host: storage.example\r\n").await.status
}

#[tokio::test]
async fn server_on_all_addresses_has_any_name() {
    assert_eq!(status_under_another_name("0.0.0.0:0").await, 200);
    // The control: this is a way to write a loopback address.
    assert_eq!(status_under_another_name("[::ffff:127.0.0.1]:0").await, 421);
}

#[tokio::test]
async fn no_page_is_allowed_to_read_the_answers() {
    let World { server, .. } = World::on_sqlite(&[]).await;
    let origin = "Host: localhost\r\nOrigin: http://evil.example\r\n";
    let read = get(server.url(), "/v1/resources", origin).await;
    assert_eq!(read.status, 200);
    assert_eq!(read.header("access-control-allow-origin"), None);
    let preflight = format!(
        "OPTIONS /v1/resources/r HTTP/1.1\r\n{origin}Access-Control-Request-Method: PUT\r\n\
         Connection: close\r\n\r\n"
    );
    let preflight = wire::send(server.url(), preflight.into_bytes()).await;
    assert_eq!(preflight.problem(), "405 method-not-allowed");
    assert_eq!(preflight.header("access-control-allow-methods"), None);
}

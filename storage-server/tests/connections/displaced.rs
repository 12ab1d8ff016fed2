//! Connections that are closed so that others can connect.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tempfile::TempDir;
use testbed::{StorageServer, process::Process};
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::Barrier};

use super::{LIVEZ, PATIENCE, half_write, read_answer, read_to_end};
use crate::bodies::{VALUE_BYTES, is_rejected, repeat_until_steady, send_in_parts, write};
use crate::programs::{STORAGE_SERVER, storage_server};
use crate::wire;

#[tokio::test]
async fn silent_connections_are_closed_for_others() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$@\"", "sh", STORAGE_SERVER]);
    command.args(["--listen", "127.0.0.1:0"]).current_dir(folder.path());
    let mut process = Process::spawn("storage-server", &command, folder.path()).unwrap();
    let line = process.line(PATIENCE).await.unwrap();
    let url = line.strip_prefix("listening on ").unwrap();

    // A request in flight is no silence. Its body keeps coming.
    const SILENT: usize = 600;
    const STEP: usize = 20;
    let part = vec![b'x'; 32 << 10];
    let mut in_flight = half_write(url, SILENT / STEP * part.len() + 2).await;
    let begun = Instant::now();
    let mut silent = Vec::new();
    for token in 0..SILENT {
        silent.push(wire::connect(url).await);
        if token % STEP == 0 {
            in_flight.write_all(&part).await.unwrap();
            let token = (token + 1).to_string();
            let headers = [("Fencing-Token", token.as_str())];
            let answer = wire::request(url, "PUT", "/v1/resources/other", &headers, "x").await;
            assert!(answer.status < 300, "{answer:?}");
        }
    }
    // The first of them was silent for the longest. Silence alone would close it later.
    displaced(&mut silent[0]).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    in_flight.write_all(b"ab").await.unwrap();
    assert_eq!(read_answer(&mut in_flight).await.0, 201);
    process.signal(Signal::TERM).unwrap();
    process.exit(PATIENCE).await.unwrap();
    let log = process.stderr().unwrap();
    assert!(log.contains("the limit on open files allows no more connections"), "{log}");
    assert!(log.contains("closed idle connections, to accept others"), "{log}");
    assert!(!log.contains("could not accept"), "{log}");
}

/// Otherwise a flood would close the connections of clients that pause between requests.
#[tokio::test]
async fn connection_that_has_had_a_request_outlasts_silent_ones() {
    let arguments = ["--max-connections", "8"];
    let server = StorageServer::start(&storage_server(), &arguments).await.unwrap();
    let mut client = wire::connect(server.url()).await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        client.write_all(LIVEZ).await.unwrap();
        assert_eq!(read_answer(&mut client).await.0, 200);
        for _ in 0..20 {
            silent.push(wire::connect(server.url()).await);
        }
    }
    // The last flood has come, too: seven of the 80 have a place.
    displaced(&mut silent[72]).await;
    client.write_all(LIVEZ).await.unwrap();
    assert_eq!(read_answer(&mut client).await.0, 200);
}

/// Half of the connections stay theirs, however many silent ones come.
#[tokio::test]
async fn silent_connections_take_at_most_half_from_clients_that_pause() {
    let server =
        StorageServer::start(&storage_server(), &["--max-connections", "8"]).await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..7 {
        let mut client = wire::connect(server.url()).await;
        client.write_all(LIVEZ).await.unwrap();
        assert_eq!(read_answer(&mut client).await.0, 200);
        clients.push(client);
    }
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(wire::connect(server.url()).await);
    }
    // The longest idle ones were closed.
    displaced(&mut clients[0]).await;
    // All 40 have come: four of them have a place.
    displaced(&mut silent[35]).await;
    for client in &mut clients[3..] {
        client.write_all(LIVEZ).await.unwrap();
        assert_eq!(read_answer(client).await.0, 200);
    }
}

/// A connection was closed for another one. Silence alone would close it after 20 s.
async fn displaced(connection: &mut TcpStream) {
    let (_, open_for) = read_to_end(connection).await;
    assert!(open_for < Duration::from_secs(10), "it was closed after {open_for:?}");
}

/// Otherwise clients that pause between requests would leave a place to one other only.
#[tokio::test]
async fn connections_that_have_had_a_request_are_closed_for_new_ones() {
    let arguments = ["--max-connections", "8"];
    let server = StorageServer::start(&storage_server(), &arguments).await.unwrap();
    let mut served = Vec::new();
    for _ in 0..8 {
        let mut client = wire::connect(server.url()).await;
        client.write_all(LIVEZ).await.unwrap();
        assert_eq!(read_answer(&mut client).await.0, 200);
        served.push(client);
    }
    let mut new = [wire::connect(server.url()).await, wire::connect(server.url()).await];
    for client in &mut new {
        client.write_all(LIVEZ).await.unwrap();
        assert_eq!(read_answer(client).await.0, 200);
    }
    displaced(&mut served[0]).await;
}

const TWO_CONNECTIONS: [&str; 2] = ["--max-connections", "2"];

#[tokio::test]
async fn half_sent_bodies_are_dropped_for_other_connections() {
    let server = StorageServer::start(&storage_server(), &TWO_CONNECTIONS).await.unwrap();
    let first = half_write(server.url(), 2).await;
    let second = half_write(server.url(), 2).await;
    let begun = Instant::now();
    assert_eq!(wire::request(server.url(), "GET", "/livez", &[], "").await.status, 200);
    // Earlier than if nobody had waited.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    tokio::join!(is_rejected(first, "408 slow-body"), is_rejected(second, "408 slow-body"));
}

/// The server reads such bodies only so that the clients see the answer.
#[tokio::test]
async fn half_sent_bodies_of_rejected_requests_are_dropped_for_other_connections() {
    let server = StorageServer::start(&storage_server(), &TWO_CONNECTIONS).await.unwrap();
    // More than the system takes before the server reads.
    let half = vec![b'x'; 8 << 20];
    let rejected =
        async || write(server.url(), "/v1/resources/%ff", "Content-Length: 16777216", &half).await;
    let mut first = rejected().await;
    let mut second = rejected().await;
    let begun = Instant::now();
    assert_eq!(wire::request(server.url(), "GET", "/livez", &[], "").await.status, 200);
    // Earlier than if nobody had waited.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    for connection in [&mut first, &mut second] {
        assert_eq!(wire::answer(connection).await.problem(), "400 malformed-name");
    }
}

/// The control of the three tests above: there is a limit, and clients that keep sending are not cut off.
#[tokio::test]
async fn connections_with_requests_in_flight_are_not_closed_for_others() {
    repeat_until_steady(connection_beside_two_with_requests_in_flight).await;
}

/// Returns whether the clients with requests in flight were steady.
async fn connection_beside_two_with_requests_in_flight() -> bool {
    let server = StorageServer::start(&storage_server(), &TWO_CONNECTIONS).await.unwrap();
    let url = server.url();
    let value = vec![b'x'; VALUE_BYTES];
    let in_flight = Barrier::new(3);
    let steady = async |resource| {
        let length = format!("Content-Length: {VALUE_BYTES}\r\nExpect: 100-continue");
        let mut body = write(url, resource, &length, b"").await;
        assert_eq!(read_answer(&mut body).await.0, 100);
        in_flight.wait().await;
        let (last, most) = value.split_last().unwrap();
        if !send_in_parts(&mut body, most, 40, Duration::from_millis(125)).await {
            return None;
        }
        let in_flight_until = Instant::now();
        body.write_all(&[*last]).await.unwrap();
        assert_eq!(read_answer(&mut body).await.0, 201);
        Some(in_flight_until)
    };
    let third = async {
        in_flight.wait().await;
        assert_eq!(wire::request(url, "GET", "/livez", &[], "").await.status, 200);
        Instant::now()
    };
    let (first, second, third) =
        tokio::join!(steady("/v1/resources/a"), steady("/v1/resources/b"), third);
    let (Some(first), Some(second)) = (first, second) else { return false };
    assert!(third > first.min(second), "a third connection was served beside two others");
    true
}

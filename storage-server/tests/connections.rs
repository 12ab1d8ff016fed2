//! Clients that keep the server waiting: they are cut off, and don't hold up the others.

mod displaced;
mod limits;
mod silence;

use std::{
    io::ErrorKind,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::Signal;
use testbed::{StorageServer, wait::until_async};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::programs::storage_server;
use crate::wire;

/// Connections that keep the server waiting are closed within this time.
const CLOSED_WITHIN: Duration = Duration::from_secs(30);
/// But not before this time.
pub(crate) const OPEN_FOR: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(20);

const LIVEZ: &[u8] = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// How many bytes an HTTP/2 client takes before it has read them.
const WINDOW_BYTES: u32 = 64 << 10;

/// A connection that sends these bytes and nothing else.
pub(crate) async fn sending(url: &str, bytes: &[u8]) -> TcpStream {
    let mut connection = wire::connect(url).await;
    connection.write_all(bytes).await.unwrap();
    connection
}

/// Sends the head of a write of this many bytes, and waits until the server asks for them.
async fn half_write(url: &str, bytes: usize) -> TcpStream {
    let head = format!(
        "PUT /v1/resources/r HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\n\
         Content-Length: {bytes}\r\nExpect: 100-continue\r\n\r\n"
    );
    let mut connection = sending(url, head.as_bytes()).await;
    assert_eq!(read_answer(&mut connection).await.0, 100);
    connection
}

/// Reads one answer on a connection that stays open, and returns its status and body.
pub(crate) async fn read_answer(connection: &mut TcpStream) -> (u16, Vec<u8>) {
    let read = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(connection.read_u8().await.expect("an answer"));
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        connection.read_exact(&mut body).await.expect("a whole answer");
        (status, body)
    };
    timeout(PATIENCE, read).await.expect("no answer")
}

/// Reads to the end of the connection, and returns how many bytes came and how long that took.
pub(crate) async fn read_to_end(connection: &mut TcpStream) -> (usize, Duration) {
    let begun = Instant::now();
    let mut read = 0;
    let mut bytes = vec![0; 64 << 10];
    let to_end = async {
        loop {
            match connection.read(&mut bytes).await {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(CLOSED_WITHIN, to_end).await.expect("the connection was not closed");
    (read, begun.elapsed())
}

async fn http2_client(url: &str) -> http2::SendRequest<Full<Bytes>> {
    let connection = TokioIo::new(wire::connect(url).await);
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    // Smaller than hyper's, in which a whole value fits.
    http2.initial_stream_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    let (client, connection) = http2.handshake(connection).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn http2_request(
    client: &mut http2::SendRequest<Full<Bytes>>,
    request: hyper::http::request::Builder,
    body: impl Into<Bytes>,
) -> (u16, Bytes) {
    client.ready().await.unwrap();
    let answer = client.send_request(request.body(Full::new(body.into())).unwrap());
    let (head, body) = timeout(PATIENCE, answer).await.unwrap().unwrap().into_parts();
    (head.status.as_u16(), body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn drain_answers_requests_in_flight_and_closes_the_other_connections() {
    let mut server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let mut silent = wire::connect(server.url()).await;
    let mut idle = sending(server.url(), LIVEZ).await;
    assert_eq!(read_answer(&mut idle).await.0, 200);
    // Its body keeps coming.
    let mut in_flight = half_write(server.url(), 4).await;
    server.process().signal(Signal::TERM).unwrap();
    for connection in [&mut silent, &mut idle] {
        assert_eq!(read_to_end(connection).await.0, 0);
        in_flight.write_all(b"x").await.unwrap();
    }
    let address = server.address();
    let rejects = || async { Ok(TcpStream::connect(address).await.is_err()) };
    until_async(PATIENCE, rejects).await.expect("no further connection");
    in_flight.write_all(b"ab").await.unwrap();
    assert_eq!(read_answer(&mut in_flight).await.0, 201);
    assert_eq!(read_to_end(&mut in_flight).await.0, 0);
    let status = server.process().exit(PATIENCE).await.unwrap();
    assert_eq!(status.code(), Some(0));
}

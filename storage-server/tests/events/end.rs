//! The end of the server: it waits for no stream.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Request;
use rustix::process::Signal;
use serde_json::json;
use testbed::StorageServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use super::{PATIENCE, Watching, decide_many, write};
use crate::{connections::sending, programs::storage_server, wire};

/// Events of so many transactions don't fit in the buffers of a connection.
const MORE_THAN_FITS: usize = 20;
/// How long a stream may take to end. The drain takes 10 s for clients that it waits for.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A client that reads nothing, and for which the system holds little.
async fn unread(server: &StorageServer) -> Watching {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let connection = socket.connect(server.address()).await.unwrap();
    Watching::on(connection, &[]).await
}

/// Writes until the server accepts no connection any more, and returns how many writes were accepted.
async fn write_to_the_end(address: std::net::SocketAddr, resource: String) -> usize {
    let mut token = 0;
    loop {
        token += 1;
        let request = format!(
            "PUT /v1/resources/{resource} HTTP/1.1\r\nHost: localhost\r\nFencing-Token: {token}\r\n\
             Content-Length: 1\r\nConnection: close\r\n\r\nx"
        );
        let exchange = async {
            let mut connection = TcpStream::connect(address).await?;
            connection.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            connection.read_to_end(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = exchange.await.unwrap_or_default();
        if !answer.starts_with(b"HTTP/1.1 20") {
            return token - 1;
        }
    }
}

#[tokio::test]
async fn streams_end_at_once_when_the_server_stops_under_load() {
    let mut server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    // One client reads nothing, and has more to read than the buffers hold.
    let unread = unread(&server).await;
    for number in 0..MORE_THAN_FITS {
        decide_many(&server, &format!("{number}/")).await;
    }
    let mut watching = Vec::new();
    for _ in 0..10 {
        watching.push(Watching::start(&server).await.0);
    }
    // One over HTTP/2.
    let stream = wire::connect(server.url()).await;
    let (mut http2, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let get = Request::get(format!("{}/v1/events", server.url())).body(()).unwrap();
    let (answer, _) = http2.send_request(get, true).unwrap();
    let mut over_http2 = answer.await.unwrap().into_body();

    let load = (0..4)
        .map(|client| tokio::spawn(write_to_the_end(server.address(), format!("load-{client}"))));
    let load: Vec<_> = load.collect();
    watching[0].decision().await;
    server.process().signal(Signal::TERM).unwrap();
    let stopped = Instant::now();
    for mut watching in watching {
        let end = loop {
            let event = watching.next().await.expect("an end that a client understands");
            if !event.name.is_empty() {
                break event;
            }
        };
        assert_eq!((&*end.name, end.data), ("end", json!({"reason": "stopping"})));
        assert_eq!(watching.next().await, None);
    }
    let mut text = Vec::new();
    while let Some(data) = timeout(PATIENCE, over_http2.data()).await.unwrap() {
        let data: Bytes = data.unwrap();
        over_http2.flow_control().release_capacity(data.len()).unwrap();
        text.extend_from_slice(&data);
    }
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with("event: end\ndata: {\"reason\":\"stopping\"}\n\n"), "{text}");
    assert!(stopped.elapsed() < AT_ONCE, "{:?}", stopped.elapsed());
    let mut written = 0;
    for load in load {
        written += load.await.unwrap();
    }
    assert!(written > 0, "there was load");
    assert_eq!(server.process().exit(PATIENCE).await.unwrap().code(), Some(0));
    let log = server.log().unwrap();
    assert!(!log.contains("closing connections whose clients did not finish"), "{log}");
    drop(unread);
}

/// hyper may still take the end of a stream whose client reads nothing. Then no request is in flight, and the
/// connection stays open for what was not read. Of these clients, some have just as much to read.
#[tokio::test]
async fn server_stops_at_once_whatever_its_clients_have_not_read() {
    const CLIENTS: usize = 50;
    /// Events of about 700 bytes for each of them, and for those before. The buffers hold fewer than 400.
    const EVENTS: usize = 8;
    let mut server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let padding = "x".repeat(450);
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        clients.push(unread(&server).await);
        for event in 0..EVENTS {
            assert_eq!(write(&server, &format!("{client}/{event}/{padding}"), 1).await, 201);
        }
    }
    server.process().signal(Signal::TERM).unwrap();
    let stopped = Instant::now();
    assert_eq!(server.process().exit(PATIENCE).await.unwrap().code(), Some(0));
    let log = server.log().unwrap();
    assert!(!log.contains("closing connections whose clients did not finish"), "{log}");
    assert!(stopped.elapsed() < AT_ONCE, "{:?}", stopped.elapsed());
}

/// The control: the drain does wait for a request that has begun.
#[tokio::test]
async fn drain_waits_for_other_requests_beside_a_stream() {
    let mut server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let (mut watching, _) = Watching::start(&server).await;
    let half = "PUT /v1/resources/r HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\n\
                Content-Length: 2\r\n\r\nx";
    let mut in_flight = sending(server.url(), half.as_bytes()).await;
    assert_eq!(write(&server, "other", 1).await, 201);
    assert_eq!(watching.resources(1).await, ["other"]);
    server.process().signal(Signal::TERM).unwrap();
    assert_eq!(watching.next().await.unwrap().name, "end");
    assert_eq!(watching.next().await, None);
    in_flight.write_all(b"x").await.unwrap();
    assert_eq!(wire::answer(&mut in_flight).await.status, 201);
    assert_eq!(server.process().exit(PATIENCE).await.unwrap().code(), Some(0));
}

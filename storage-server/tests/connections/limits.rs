//! The limits on open files and on heads, and values that are larger than the window of HTTP/2.

use bytes::Bytes;
use hyper::Request;
use testbed::StorageServer;

#[cfg(target_os = "linux")]
use super::{LIVEZ, read_answer, sending};
use super::{http2_client, http2_request};
use crate::logs::is_logged;
use crate::programs::storage_server;
use crate::wire;

/// The limit on open files is lowered under a running server: no accept succeeds.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn server_survives_that_it_can_accept_nothing() {
    use rustix::process::{Resource, Rlimit, prlimit};

    let mut server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let pid = Some(server.process().pid());
    let few = Rlimit { current: Some(8), maximum: Some(1024) };
    prlimit(pid, Resource::Nofile, few).unwrap();
    let mut waiting = sending(server.url(), LIVEZ).await;
    is_logged(&server, "could not accept connections").await;
    let log = server.log().unwrap();
    let line = log.lines().find(|line| line.contains("could not accept")).unwrap();
    let count: u32 = line.rsplit_once("count=").unwrap().1.parse().unwrap();
    assert!(count < 100, "it tried again {count} times in 5 s");
    prlimit(pid, Resource::Nofile, Rlimit { current: Some(1024), ..few }).unwrap();
    assert_eq!(read_answer(&mut waiting).await.0, 200);
}

#[tokio::test]
async fn heads_have_limits() {
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let url = server.url();
    let many = |count: usize| "h: x\r\n".repeat(count);
    let long = |bytes: usize| format!("h: {}\r\n", "x".repeat(bytes));
    let cases = [(many(90), 200), (many(110), 431), (long(12 << 10), 200), (long(20 << 10), 431)];
    for (headers, expected) in cases {
        let head =
            format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
        let answer = wire::send(url, head.into_bytes()).await;
        assert_eq!(answer.status, expected, "{} bytes of headers", headers.len());
    }
    for (bytes, expected) in [(12 << 10, 200), (20 << 10, 431)] {
        let mut client = http2_client(url).await;
        let request = Request::get(format!("{url}/livez")).header("h", "x".repeat(bytes));
        assert_eq!(http2_request(&mut client, request, "").await.0, expected, "{bytes} bytes");
    }
}

#[tokio::test]
async fn http2_is_served_with_prior_knowledge() {
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let resource = format!("{}/v1/resources/r", server.url());
    let mut client = http2_client(server.url()).await;
    // Larger than what a client may send, or can receive, at once.
    let value = Bytes::from(vec![b'x'; 1 << 20]);
    let write = || Request::put(&resource).header("fencing-token", "1");
    assert_eq!(http2_request(&mut client, write(), value.clone()).await.0, 201);
    assert_eq!(http2_request(&mut client, Request::get(&resource), "").await, (200, value));
    let stale = Request::put(&resource).header("fencing-token", "0");
    assert_eq!(http2_request(&mut client, stale, "x").await.0, 400);
}

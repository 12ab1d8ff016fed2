//! Clients that send nothing more, or read nothing.

use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http2};
use testbed::StorageServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{interval, sleep},
};

use super::{
    CLOSED_WITHIN, LIVEZ, OPEN_FOR, http2_client, http2_request, read_answer, read_to_end, sending,
};
use crate::logs::is_logged;
use crate::programs::storage_server;
use crate::wire;

/// The connection stays open for a while, and is then closed without a word.
async fn is_closed_in_time(mut connection: TcpStream, what: &str) {
    let (_, open_for) = read_to_end(&mut connection).await;
    assert!(open_for > OPEN_FOR, "{what} was closed after {open_for:?}");
}

#[tokio::test]
async fn connections_that_keep_the_server_waiting_are_closed() {
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let url = server.url();
    let silent = async { is_closed_in_time(wire::connect(url).await, "silence").await };
    let half_head = async {
        let head = b"GET /livez HTTP/1.1\r\nHost:";
        is_closed_in_time(sending(url, head).await, "a half-sent head").await;
    };
    let slow_head = async {
        let (mut reader, mut writer) =
            sending(url, b"GET /livez HTTP/1.1\r\nh: ").await.into_split();
        let mut pause = interval(Duration::from_secs(1));
        let trickle = async {
            while writer.write_all(b"x").await.is_ok() {
                pause.tick().await;
            }
        };
        let closed = async { reader.read(&mut [0]).await };
        tokio::select! {
            () = trickle => {}
            _ = closed => {}
            () = sleep(CLOSED_WITHIN) => panic!("a head that trickles was waited for"),
        }
    };
    let idle = async {
        let mut idle = sending(url, LIVEZ).await;
        assert_eq!(read_answer(&mut idle).await.0, 200);
        is_closed_in_time(idle, "an idle connection").await;
    };
    let half_preface = async {
        is_closed_in_time(sending(url, b"PRI * HTTP/2.0\r\n").await, "half a preface").await;
    };
    let idle_http2 = async {
        let mut client = http2_client(url).await;
        let request = Request::get(format!("{url}/livez"));
        assert_eq!(http2_request(&mut client, request, "").await.0, 200);
        let begun = Instant::now();
        while !client.is_closed() {
            assert!(begun.elapsed() < CLOSED_WITHIN, "an idle HTTP/2 connection was kept");
            sleep(Duration::from_millis(100)).await;
        }
        assert!(begun.elapsed() > OPEN_FOR);
    };
    // The control: a client that goes on is never cut off.
    let busy = async {
        let mut busy = wire::connect(url).await;
        for _ in 0..12 {
            busy.write_all(LIVEZ).await.unwrap();
            assert_eq!(read_answer(&mut busy).await.0, 200);
            sleep(Duration::from_secs(2)).await;
        }
    };
    tokio::join!(silent, half_head, slow_head, idle, half_preface, idle_http2, busy);
    is_logged(&server, "closed connections that sent no whole request").await;
}

/// On HTTP/1, the answers fill the buffers of the system. On HTTP/2, the client opens no window
/// for them, while the connection itself is not held up.
#[tokio::test]
async fn clients_that_read_no_answers_are_cut_off() {
    const ANSWERS: usize = 16;
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let url = server.url();
    let value = vec![b'x'; 1 << 20];
    let headers = [("Fencing-Token", "1")];
    assert_eq!(wire::request(url, "PUT", "/v1/resources/r", &headers, &value).await.status, 201);
    let requests = b"GET /v1/resources/r HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(ANSWERS);

    let unread = async {
        let mut connection = sending(url, &requests).await;
        sleep(CLOSED_WITHIN).await;
        let (read, _) = read_to_end(&mut connection).await;
        assert!(read < ANSWERS << 20, "all answers waited for a client that did not read");
    };
    let unread_http2 = async {
        let mut client = http2_client(url).await;
        client.ready().await.unwrap();
        let get = |client: &mut http2::SendRequest<_>| {
            let get = Request::get(format!("{url}/v1/resources/r"));
            client.send_request(get.body(Full::default()).unwrap())
        };
        let unread = get(&mut client).await.unwrap();
        // The connection is alive all the time.
        let begun = Instant::now();
        while !client.is_closed() {
            assert!(begun.elapsed() < CLOSED_WITHIN, "an unread answer was kept");
            let livez = Request::get(format!("{url}/livez")).body(Full::default()).unwrap();
            let _ = client.send_request(livez).await;
            sleep(Duration::from_millis(500)).await;
        }
        assert!(unread.into_body().collect().await.is_err());
    };
    // The control: a client that reads slowly gets all answers.
    let slow = async {
        let mut connection = sending(url, &requests).await;
        for _ in 0..ANSWERS {
            assert_eq!(read_answer(&mut connection).await, (200, value.clone()));
            sleep(Duration::from_millis(1500)).await;
        }
    };
    tokio::join!(unread, unread_http2, slow);
    is_logged(&server, "closed connections that did not read their answers").await;
}

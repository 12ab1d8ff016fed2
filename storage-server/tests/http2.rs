//! HTTP/2 connections whose clients cut requests off, or hold others up.

use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::{Reason, SendStream, client::SendRequest};
use hyper::{Request, Response, StatusCode};
use testbed::StorageServer;
use tokio::{
    io::AsyncWriteExt,
    join,
    time::{interval, timeout},
};

use crate::{
    bodies::{self, MEMORY_FOR_ONE},
    logs::is_logged,
    programs::storage_server,
    wire::{self, Answer},
};

const PATIENCE: Duration = Duration::from_secs(20);

async fn connect(url: &str) -> SendRequest<Bytes> {
    let (client, connection) = h2::client::handshake(wire::connect(url).await).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Sends a request without a body over a connection of its own.
pub(crate) async fn request(
    url: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let head = Request::builder().method(method).uri(format!("{url}{path}"));
    let head = headers.iter().fold(head, |head, (name, value)| head.header(*name, *value));
    let mut client = connect(url).await;
    let (answered, mut body) = begin(&mut client, head).await;
    body.send_data(Bytes::new(), true).unwrap();
    let (head, mut body) = answer(answered).await.into_parts();
    let headers = head.headers.iter();
    let headers =
        headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let mut answer =
        Answer { status: head.status.as_u16(), headers: headers.collect(), body: Vec::new() };
    while let Some(data) = timeout(PATIENCE, body.data()).await.expect("the body stalls") {
        answer.body.extend_from_slice(&data.unwrap());
    }
    answer
}

fn put(url: &str, resource: &str) -> hyper::http::request::Builder {
    Request::put(format!("{url}/v1/resources/{resource}")).header("Fencing-Token", "1")
}

/// Sends the head of a request, and returns its answer and where the body goes.
async fn begin(
    client: &mut SendRequest<Bytes>,
    head: hyper::http::request::Builder,
) -> (h2::client::ResponseFuture, SendStream<Bytes>) {
    let mut client = client.clone().ready().await.unwrap();
    client.send_request(head.body(()).unwrap(), false).unwrap()
}

async fn answer(answer: h2::client::ResponseFuture) -> Response<h2::RecvStream> {
    timeout(PATIENCE, answer).await.expect("no answer").unwrap()
}

/// Writes a value of five bytes, and resets the stream before or after the end of the body.
async fn write_and_reset(
    client: &mut SendRequest<Bytes>,
    head: hyper::http::request::Builder,
    is_whole: bool,
) {
    let (answered, mut body) = begin(client, head).await;
    body.send_data("value".into(), is_whole).unwrap();
    if is_whole {
        answer(answered).await;
    } else {
        body.send_reset(Reason::NO_ERROR);
    }
}

/// A proxy may reset an upload without an error when its own client has gone.
#[tokio::test]
async fn part_of_a_value_is_never_stored() {
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let url = server.url();
    for number in 0..30 {
        let mut client = connect(url).await;
        let declared = put(url, &format!("declared-{number}")).header("Content-Length", "1000");
        write_and_reset(&mut client, declared, false).await;
        write_and_reset(&mut client, put(url, &format!("part-{number}")), false).await;
        // The server reads the frames of a connection in order.
        let livez = Request::get(format!("{url}/livez"));
        let (answered, mut body) = begin(&mut client, livez).await;
        body.send_data(Bytes::new(), true).unwrap();
        assert_eq!(answer(answered).await.status(), StatusCode::OK);
    }
    // The control is decided after all others.
    write_and_reset(&mut connect(url).await, put(url, "whole"), true).await;
    let listed = wire::request(url, "GET", "/v1/resources", &[], "").await.json();
    let listed = listed["resources"].as_array().unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["resource"], "whole");
}

#[tokio::test]
async fn heads_of_requests_without_bodies_take_memory() {
    let server = StorageServer::start(&storage_server(), &MEMORY_FOR_ONE).await.unwrap();
    let url = server.url();
    let with_headers = |count: usize| {
        let head = put(url, "r").header("Content-Length", "5");
        (0..count).fold(head, |head, number| head.header(format!("n{}", number % 3), ""))
    };
    let mut client = connect(url).await;
    let mut open = Vec::new();
    for _ in 0..20 {
        open.push(begin(&mut client, with_headers(80)).await);
    }
    // The control: other requests get memory.
    assert_eq!(wire::request(url, "GET", "/livez", &[], "").await.status, 200);
    let mut statuses = Vec::new();
    for (answered, mut body) in open {
        // One that is rejected may have been answered already.
        let _ = body.send_data("value".into(), true);
        statuses.push(answer(answered).await.status());
    }
    assert!(statuses.contains(&StatusCode::SERVICE_UNAVAILABLE), "{statuses:?}");
    assert!(statuses.contains(&StatusCode::OK), "{statuses:?}");
    // They have given back their memory.
    let (answered, mut body) = begin(&mut client, with_headers(80)).await;
    body.send_data("value".into(), true).unwrap();
    assert_eq!(answer(answered).await.status(), StatusCode::OK);

    let (answered, mut body) = begin(&mut client, with_headers(100)).await;
    body.send_data("value".into(), true).unwrap();
    assert_eq!(answer(answered).await.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    is_logged(&server, "rejected requests whose headers are too many or too large").await;
}

#[tokio::test]
async fn connection_whose_bodies_never_come_makes_way_for_others() {
    let two = ["--max-connections", "2"];
    let server = StorageServer::start(&storage_server(), &two).await.unwrap();
    let url = server.url();
    let (mut first, mut second) = (connect(url).await, connect(url).await);
    let hold = async |client: &mut SendRequest<Bytes>| {
        let mut pause = interval(Duration::from_millis(300));
        let mut open = Vec::new();
        // It ends when the server takes no more requests on this connection.
        while let Ok(mut ready) = client.clone().ready().await {
            pause.tick().await;
            let head = put(url, "r").body(()).unwrap();
            match ready.send_request(head, false) {
                Ok(request) => open.push(request),
                Err(_) => break,
            }
        }
    };
    let other = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begun = Instant::now();
        assert_eq!(wire::request(url, "GET", "/livez", &[], "").await.status, 200);
        assert!(begun.elapsed() < PATIENCE);
    };
    let holding = async { join!(hold(&mut first), hold(&mut second)) };
    let ended = timeout(PATIENCE * 2, async { join!(holding, other) }).await;
    ended.expect("both connections are closed");
}

/// Four of them would fill a smaller window of the connection.
#[tokio::test]
async fn bodies_that_wait_for_memory_hold_up_no_other_request_of_their_connection() {
    let budget = ["--max-value-bytes", "16777216", "--max-bytes-in-flight", "4194304"];
    let server = StorageServer::start(&storage_server(), &budget).await.unwrap();
    let url = server.url();
    // A body that keeps coming takes all memory.
    let length = "Content-Length: 16777216";
    let mut first = bodies::write(url, "/v1/resources/first", length, &[b'x'; 1 << 16]).await;
    let hold = async {
        let mut pause = interval(Duration::from_millis(100));
        while first.write_all(&[b'x'; 1 << 16]).await.is_ok() {
            pause.tick().await;
        }
        panic!("the body that keeps coming was cut off");
    };
    let mut client = connect(url).await;
    let others = async {
        let mut waiting = Vec::new();
        for _ in 0..8 {
            let large = put(url, "large").header("Content-Length", "1048576");
            let (answered, mut body) = begin(&mut client, large).await;
            body.send_data(vec![b'x'; 1 << 16].into(), false).unwrap();
            waiting.push((answered, body));
        }
        let small = put(url, "small").header("Content-Length", "5");
        let (answered, mut body) = begin(&mut client, small).await;
        body.send_data("value".into(), true).unwrap();
        tokio::select! {
            biased;
            _ = &mut waiting[0].0 => panic!("it was held up until the others were answered"),
            small = answer(answered) => assert_eq!(small.status(), StatusCode::CREATED),
        }
    };
    tokio::select! {
        () = hold => {}
        () = others => {}
    }
}

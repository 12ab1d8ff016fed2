//! Clients that keep the server waiting: they are cut off, and don't hold up the others.

use std::{
    io::ErrorKind,
    process::Command,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::Signal;
use tempfile::TempDir;
use testbed::{
    StorageServer,
    process::Process,
    wait::{until, until_async},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Barrier,
    time::{interval, sleep, timeout},
};

use crate::bodies::{VALUE_BYTES, is_refused, repeat_until_steady, send_in_parts, write};
use crate::programs::{STORAGE_SERVER, storage_server};
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

/// The connection stays open for a while, and is then closed without a word.
async fn is_closed_in_time(mut connection: TcpStream, what: &str) {
    let (_, open_for) = read_to_end(&mut connection).await;
    assert!(open_for > OPEN_FOR, "{what} was closed after {open_for:?}");
}

/// Refusals are logged every few seconds.
pub(crate) async fn is_logged(server: &StorageServer, line: &str) {
    let logged = until(PATIENCE, || Ok(server.log()?.contains(line))).await;
    assert!(logged.is_ok(), "{:?}", server.log());
}

async fn http2_client(url: &str) -> http2::SendRequest<Full<Bytes>> {
    let connection = TokioIo::new(wire::connect(url).await);
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    // Smaller than hyper's, in which a whole value has room.
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

/// On HTTP/1, the answers fill the buffers of the system. On HTTP/2, the client makes no room for
/// them, while the connection itself is not held up.
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

#[tokio::test]
async fn silent_connections_make_room_for_others() {
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
    // The first of them was silent for the longest.
    read_to_end(&mut silent[0]).await;
    in_flight.write_all(b"ab").await.unwrap();
    assert_eq!(read_answer(&mut in_flight).await.0, 201);
    process.signal(Signal::TERM).unwrap();
    process.exit(PATIENCE).await.unwrap();
    let log = process.stderr().unwrap();
    assert!(log.contains("the limit on open files allows no more connections"), "{log}");
    assert!(log.contains("closed the longest idle connections, to accept others"), "{log}");
    assert!(!log.contains("could not accept"), "{log}");
}

const TWO_CONNECTIONS: [&str; 2] = ["--max-connections", "2"];

#[tokio::test]
async fn half_sent_bodies_make_room_for_other_connections() {
    let server = StorageServer::start(&storage_server(), &TWO_CONNECTIONS).await.unwrap();
    let first = half_write(server.url(), 2).await;
    let second = half_write(server.url(), 2).await;
    let begun = Instant::now();
    assert_eq!(wire::request(server.url(), "GET", "/livez", &[], "").await.status, 200);
    // Earlier than if nobody had waited.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    tokio::join!(is_refused(first, "408 slow-body"), is_refused(second, "408 slow-body"));
}

/// The server reads such bodies only so that the clients see the answer.
#[tokio::test]
async fn half_sent_bodies_of_rejected_requests_make_room_for_other_connections() {
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

/// The control of the three tests above: there is a limit, and clients that go on make no room.
#[tokio::test]
async fn connections_with_requests_in_flight_make_no_room() {
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
    // Larger than what a client may send, or has room for, at once.
    let value = Bytes::from(vec![b'x'; 1 << 20]);
    let write = || Request::put(&resource).header("fencing-token", "1");
    assert_eq!(http2_request(&mut client, write(), value.clone()).await.0, 201);
    assert_eq!(http2_request(&mut client, Request::get(&resource), "").await, (200, value));
    let stale = Request::put(&resource).header("fencing-token", "0");
    assert_eq!(http2_request(&mut client, stale, "x").await.0, 400);
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
    let refuses = || async { Ok(TcpStream::connect(address).await.is_err()) };
    until_async(PATIENCE, refuses).await.expect("no further connection");
    in_flight.write_all(b"ab").await.unwrap();
    assert_eq!(read_answer(&mut in_flight).await.0, 201);
    assert_eq!(read_to_end(&mut in_flight).await.0, 0);
    let status = server.process().exit(PATIENCE).await.unwrap();
    assert_eq!(status.code(), Some(0));
}

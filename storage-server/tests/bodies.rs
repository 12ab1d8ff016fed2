//! Bodies that are sent slowly or half, and the memory that they and unread answers take.

use std::time::{Duration, Instant};

use serde_json::json;
use testbed::{StorageServer, wait::until_async};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    sync::Barrier,
    time::{interval, sleep},
};

use crate::connections::{read_answer, read_to_end, sending};
use crate::logs::is_logged;
use crate::programs::storage_server;
use crate::wire;

const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const VALUE_BYTES: usize = 1 << 20;

/// Sends the head of a write, and whatever else is in `rest`.
pub(crate) async fn write(url: &str, resource: &str, length: &str, rest: &[u8]) -> TcpStream {
    let head = format!(
        "PUT {resource} HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\n{length}\r\n\r\n"
    );
    sending(url, &[head.as_bytes(), rest].concat()).await
}

/// The connection gets a problem document of this slug, and is closed. Returns after how long.
pub(crate) async fn is_rejected(mut connection: TcpStream, slug: &str) -> Duration {
    let begun = Instant::now();
    let answer = wire::answer(&mut connection).await;
    assert_eq!(answer.problem(), slug);
    assert_eq!(answer.json()["outcome"], "none");
    begun.elapsed()
}

/// A client that sends nothing for this long is not steady: while memory is short, the server cuts it
/// off after 1 s.
const STEADY: Duration = Duration::from_millis(800);

/// Sends bytes in parts, a part at a time. Returns whether the client was steady. One that was not
/// stops.
pub(crate) async fn send_in_parts(
    connection: &mut TcpStream,
    bytes: &[u8],
    parts: usize,
    pause: Duration,
) -> bool {
    let mut interval = interval(pause);
    let mut last = Instant::now();
    for part in bytes.chunks(bytes.len() / parts) {
        interval.tick().await;
        if last.elapsed() > STEADY.max(2 * pause) {
            return false;
        }
        connection.write_all(part).await.unwrap();
        last = Instant::now();
    }
    true
}

/// Repeats an experiment until its clients were steady, as on a machine that is not too busy.
pub(crate) async fn repeat_until_steady(experiment: impl AsyncFn() -> bool) {
    for _ in 0..10 {
        if experiment().await {
            return;
        }
    }
    panic!("the machine is too busy for a steady client");
}

#[tokio::test]
async fn body_that_comes_too_slowly_is_rejected_and_nothing_happens() {
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let url = server.url();
    let stalled = async {
        let half = write(url, "/v1/resources/half", "Content-Length: 1048576", b"x").await;
        let waited = is_rejected(half, "408 slow-body").await;
        assert!(waited > Duration::from_secs(4), "{waited:?}");
    };
    let small = async {
        let half = write(url, "/v1/resources/half", "Content-Length: 2", b"x").await;
        is_rejected(half, "408 slow-body").await;
    };
    let chunked = async {
        let chunked = "Transfer-Encoding: chunked";
        let half = write(url, "/v1/resources/half", chunked, b"1\r\nx\r\n").await;
        is_rejected(half, "408 slow-body").await;
    };
    let trickling = async {
        let half = write(url, "/v1/resources/half", "Content-Length: 1048576", b"x").await;
        let (reader, mut writer) = half.into_split();
        let trickle = async {
            let mut pause = interval(Duration::from_secs(1));
            while writer.write_all(b"x").await.is_ok() {
                pause.tick().await;
            }
        };
        let begun = Instant::now();
        tokio::select! {
            readable = reader.readable() => readable.unwrap(),
            () = trickle => {}
            () = sleep(PATIENCE) => panic!("a body that trickles was waited for"),
        }
        assert!(begun.elapsed() > Duration::from_secs(9), "{:?}", begun.elapsed());
    };
    // The control: a body that takes longer than all of these, but keeps coming.
    let steady = async {
        let mut body = write(url, "/v1/resources/steady", "Content-Length: 1048576", b"").await;
        let value = vec![b'x'; VALUE_BYTES];
        assert!(send_in_parts(&mut body, &value, 16, Duration::from_secs(1)).await);
        assert_eq!(read_answer(&mut body).await.0, 201);
    };
    tokio::join!(stalled, small, chunked, trickling, steady);
    assert_eq!(wire::request(url, "GET", "/v1/fences/half", &[], "").await.status, 404);
    is_logged(&server, "rejected bodies that came too slowly").await;
}

/// One large body fits into the memory budget.
pub(crate) const MEMORY_FOR_ONE: [&str; 2] = ["--max-bytes-in-flight", "2097152"];

#[tokio::test]
async fn half_sent_body_is_dropped_for_others() {
    let server = StorageServer::start(&storage_server(), &MEMORY_FOR_ONE).await.unwrap();
    let url = server.url();
    let value = vec![b'x'; VALUE_BYTES];
    let half = &value[1..];
    let half = write(url, "/v1/resources/half", "Content-Length: 1048576", half).await;
    let headers = [("Fencing-Token", "1")];
    let begun = Instant::now();
    let small = wire::request(url, "PUT", "/v1/resources/small", &headers, "x").await;
    assert_eq!(small.status, 201);
    let large = wire::request(url, "PUT", "/v1/resources/large", &headers, &value).await;
    assert_eq!(large.status, 201);
    // Earlier than without another body.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    is_rejected(half, "408 slow-body").await;
}

/// A request that needs no body may have one. Its client gets the decision.
#[tokio::test]
async fn claim_with_a_large_body_is_answered() {
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let (url, body, headers) = (server.url(), vec![b'x'; 8 << 20], [("Fencing-Token", "1")]);
    for _ in 0..5 {
        let claimed = wire::request(url, "PUT", "/v1/fences/r", &headers, &body).await;
        assert_eq!(claimed.status, 200);
    }
    let deleted = wire::request(url, "DELETE", "/v1/resources/r", &headers, &body).await;
    assert_eq!(deleted.status, 204);
}

/// The client would send it for nothing.
#[tokio::test]
async fn body_over_the_budget_is_not_asked_for() {
    repeat_until_steady(body_beside_one_that_takes_all_memory).await;
}

/// Returns whether the client that takes all memory was steady.
async fn body_beside_one_that_takes_all_memory() -> bool {
    let server = StorageServer::start(&storage_server(), &MEMORY_FOR_ONE).await.unwrap();
    let url = server.url();
    let value = vec![b'x'; VALUE_BYTES];
    let length = "Content-Length: 1048576\r\nExpect: 100-continue";
    let memory_is_taken = Barrier::new(2);
    let steady = async {
        let mut body = write(url, "/v1/resources/steady", length, b"").await;
        assert_eq!(read_answer(&mut body).await.0, 100, "the control");
        memory_is_taken.wait().await;
        let is_steady = send_in_parts(&mut body, &value, 80, Duration::from_millis(125)).await;
        if is_steady {
            assert_eq!(read_answer(&mut body).await.0, 201);
        }
        is_steady
    };
    let other = async {
        memory_is_taken.wait().await;
        let mut body = write(url, "/v1/resources/other", length, b"").await;
        read_answer(&mut body).await.0
    };
    let (is_steady, other) = tokio::join!(steady, other);
    assert!(!is_steady || other == 503, "{other}");
    is_steady
}

/// The control of the test above: memory is bounded, and a body that keeps coming keeps its memory.
#[tokio::test]
async fn body_over_the_budget_is_rejected_and_nothing_happens() {
    repeat_until_steady(bodies_beside_one_that_takes_all_memory).await;
}

/// Waits until the body of a request takes memory among the large ones.
pub(crate) async fn until_memory_is_taken(metrics: impl AsyncFn() -> wire::Answer) {
    let is_taken = async || {
        let text = metrics().await.text();
        let series = "storage_server_bytes_in_flight{part=\"large-bodies\"} ";
        let taken = text.lines().find_map(|line| line.strip_prefix(series));
        Ok(taken.expect("the metric is there") != "0")
    };
    until_async(PATIENCE, is_taken).await.expect("memory is taken");
}

/// Returns whether the client that takes all memory was steady.
async fn bodies_beside_one_that_takes_all_memory() -> bool {
    let server = StorageServer::start(&storage_server(), &MEMORY_FOR_ONE).await.unwrap();
    let url = server.url();
    let value = vec![b'x'; VALUE_BYTES];
    let steady = async {
        let mut body = write(url, "/v1/resources/steady", "Content-Length: 1048576", b"").await;
        let is_steady = send_in_parts(&mut body, &value, 80, Duration::from_millis(125)).await;
        if is_steady {
            assert_eq!(read_answer(&mut body).await.0, 201);
        }
        is_steady
    };
    let others = async {
        until_memory_is_taken(async || wire::request(url, "GET", "/metrics", &[], "").await).await;
        let headers = [("Fencing-Token", "1")];
        let rejected = wire::request(url, "PUT", "/v1/resources/other", &headers, &value).await;
        // The control: a small body fits.
        let small = wire::request(url, "PUT", "/v1/resources/small", &headers, "x").await;
        (rejected, small)
    };
    let (is_steady, (rejected, small)) = tokio::join!(steady, others);
    if is_steady {
        assert_eq!(rejected.problem(), "503 unavailable");
        assert_eq!(rejected.json()["outcome"], "none");
        assert_eq!(rejected.header("retry-after"), Some("1"));
        assert_eq!(small.status, 201);
        assert_eq!(wire::request(url, "GET", "/v1/fences/other", &[], "").await.status, 404);
        is_logged(&server, "too many bytes are in flight").await;
    }
    is_steady
}

/// They would be rejected as well, and a client that reads nothing may have sent many.
#[tokio::test]
async fn requests_behind_one_over_the_budget_do_not_begin() {
    let server = StorageServer::start(&storage_server(), &MEMORY_FOR_ONE).await.unwrap();
    let url = server.url();
    let headers = [("Fencing-Token", "1")];
    let value = vec![b'x'; VALUE_BYTES];
    assert_eq!(wire::request(url, "PUT", "/v1/resources/r", &headers, &value).await.status, 201);
    let request = b"GET /v1/resources/r HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Each takes the memory for some time, once the system's buffers are full.
    let mut unread = Vec::new();
    let closes_the_connection = async || {
        let mut connection = sending(url, &request.repeat(2)).await;
        let (status, problem) = read_answer(&mut connection).await;
        if status == 200 {
            return Ok(false);
        }
        let problem = String::from_utf8(problem).unwrap();
        assert_eq!(
            read_to_end(&mut connection).await.0,
            0,
            "the second one was answered {problem}"
        );
        Ok(true)
    };
    for _ in 0..10 {
        unread.push(sending(url, &request.repeat(32)).await);
        if until_async(Duration::from_secs(5), closes_the_connection).await.is_ok() {
            return;
        }
    }
    panic!("there always was memory left");
}

#[tokio::test]
async fn unread_answer_is_cut_off_for_others() {
    let server = StorageServer::start(&storage_server(), &MEMORY_FOR_ONE).await.unwrap();
    let url = server.url();
    let value = vec![b'x'; VALUE_BYTES];
    let headers = [("Fencing-Token", "1")];
    assert_eq!(wire::request(url, "PUT", "/v1/resources/r", &headers, &value).await.status, 201);
    let requests = b"GET /v1/resources/r HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(32);
    // Once the system's buffers are full, the next answer keeps its memory, until its connection is
    // cut off. On a busy machine, that may happen first: then another connection is not read.
    let (begun, mut unread, token, answer) = 'attempts: {
        for token in 2..20 {
            let begun = Instant::now();
            let unread = sending(url, &requests).await;
            let rejected = until_async(Duration::from_secs(5), || async {
                let answer = wire::request(url, "GET", "/v1/resources/r", &[], "").await;
                if answer.status == 200 {
                    return Ok(false);
                }
                assert_eq!(answer.problem(), "503 unavailable");
                assert_eq!(answer.json()["outcome"], "none");
                Ok(true)
            });
            if rejected.await.is_err() {
                continue;
            }
            // The claim of a fenced read has happened, whether or not there is memory for the answer.
            let claim = token.to_string();
            let headers = [("Fencing-Token", claim.as_str())];
            let answer = wire::request(url, "GET", "/v1/resources/r", &headers, "").await;
            if answer.status != 200 {
                break 'attempts (begun, unread, token, answer);
            }
        }
        panic!("no fenced read was rejected");
    };
    assert_eq!(answer.json()["outcome"], json!("unknown"));
    let fence = wire::request(url, "GET", "/v1/fences/r", &[], "").await;
    assert_eq!(fence.json()["token"], token);
    let read = until_async(PATIENCE, || async {
        Ok(wire::request(url, "GET", "/v1/resources/r", &[], "").await.body == value)
    });
    read.await.expect("a read that gets memory");
    // Earlier than without another answer.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(read_to_end(&mut unread).await.0 < 32 * VALUE_BYTES);
}

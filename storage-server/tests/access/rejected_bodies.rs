//! The bodies of requests that are rejected for their identity.

use std::time::Duration;

use tokio::{io::AsyncWriteExt, sync::oneshot, time::sleep};

use super::{Guarded, ask};
use crate::{
    bodies::{MEMORY_FOR_ONE, VALUE_BYTES, send_in_parts, until_memory_is_taken},
    connections::{read_answer, sending},
    wire,
};

/// A client that is still sending when the connection is closed might not see the answer.
#[tokio::test]
async fn rejection_of_a_large_value_reaches_the_client() {
    let guarded = Guarded::new();
    let writer = guarded.identity("writer", &["--prefix", "orders/", "--allow", "write"]).await;
    let arguments =
        ["--max-value-bytes", "8388608", "--auth-file", guarded.auth_file().to_str().unwrap()]
            .map(str::to_owned);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let server = guarded.database.serve(&arguments).await;
    let value = "x".repeat(8 << 20);
    let put = async |bearer: &str, path: &str| {
        let authorization = format!("Bearer {bearer}");
        let headers = [("Authorization", authorization.as_str()), ("Fencing-Token", "1")];
        wire::request(server.url(), "PUT", path, &headers, &value).await
    };
    assert_eq!(put("unknown", "/v1/resources/orders/1").await.problem(), "401 unauthenticated");
    assert_eq!(put(&writer, "/v1/resources/invoices/1").await.problem(), "403 forbidden");
    assert_eq!(put(&writer, "/v1/resources/orders/1").await.status, 201, "the control");
    let headers = [("Authorization", format!("Bearer {writer}"))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let post = wire::request(server.url(), "POST", "/v1/resources/orders/1", &headers, &value);
    assert_eq!(post.await.problem(), "405 method-not-allowed");
}

/// Otherwise clients that may not write could keep out those that may.
#[tokio::test]
async fn body_of_a_rejected_request_takes_no_memory() {
    const PAUSE: Duration = Duration::from_millis(160);
    let guarded = Guarded::new();
    let operator = guarded.identity("operator", &["--prefix", "", "--allow", "operate"]).await;
    let writer = guarded.identity("writer", &["--prefix", "orders/", "--allow", "write"]).await;
    let auth_file = guarded.auth_file();
    let arguments = [&MEMORY_FOR_ONE[..], &["--auth-file", auth_file.to_str().unwrap()]].concat();
    let server = guarded.database.serve(&arguments).await;
    let value = vec![b'x'; VALUE_BYTES];
    // Whether a write waits until the body of another request, which comes slowly, has ended.
    let keeps_others_out = async |host: &str, bearer: &str, name: &str, token: u32, status: u16| {
        let (answered, mut is_answered) = oneshot::channel();
        let slow = async {
            let head = format!(
                "PUT /v1/resources/{name} HTTP/1.1\r\nHost: {host}\r\nFencing-Token: {token}\r\n\
                 Authorization: Bearer {bearer}\r\nContent-Length: {VALUE_BYTES}\r\n\r\n"
            );
            let mut connection = sending(server.url(), head.as_bytes()).await;
            let (last, most) = value.split_last().unwrap();
            let (mut is_steady, mut keeps_out) = (true, true);
            // At most 4 s: the server reads the body of a rejected request for 5 s.
            for bytes in most.chunks(VALUE_BYTES / 8) {
                if !keeps_out {
                    connection.write_all(bytes).await.unwrap();
                } else if !send_in_parts(&mut connection, bytes, 4, PAUSE).await {
                    is_steady = false;
                    break;
                }
                keeps_out &= is_answered.try_recv().is_err();
            }
            if is_steady {
                connection.write_all(&[*last]).await.unwrap();
                let answer = read_answer(&mut connection).await;
                assert_eq!(answer.0, status, "{}", String::from_utf8_lossy(&answer.1));
            }
            is_steady.then_some(keeps_out)
        };
        let other = async {
            if status == 201 {
                let metrics = async || ask(&server, &operator, "GET", "/metrics", None).await;
                until_memory_is_taken(metrics).await;
            } else {
                // Nothing shows when the server has rejected a request whose body is not there.
                sleep(Duration::from_millis(500)).await;
            }
            let authorization = format!("Bearer {writer}");
            let headers = [("Authorization", authorization.as_str()), ("Fencing-Token", "1")];
            let path = "/v1/resources/orders/other";
            let written = wire::request(server.url(), "PUT", path, &headers, &value).await;
            assert!([200, 201].contains(&written.status), "{written:?}");
            let _ = answered.send(());
        };
        tokio::join!(slow, other).0
    };
    let kept_out = async |host: &str, bearer: &str, name: &str, token: u32, status: u16| {
        for _ in 0..10 {
            if let Some(kept_out) = keeps_others_out(host, bearer, name, token, status).await {
                return kept_out;
            }
        }
        panic!("the machine is too busy for a steady client");
    };
    assert!(!kept_out("evil.example", &writer, "orders/1", 1, 421).await);
    assert!(!kept_out("localhost", "unknown", "orders/1", 1, 401).await);
    assert!(!kept_out("localhost", &writer, "invoices/1", 1, 403).await);
    assert!(!kept_out("localhost", &writer, "orders/1", 0, 400).await);
    assert!(kept_out("localhost", &writer, "orders/1", 1, 201).await, "the control");
}

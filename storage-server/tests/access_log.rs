//! The ids of requests, the access log, and the format of the log.

use serde_json::{Value, json};
use testbed::{StorageServer, wait::until};

use crate::{
    access::Guarded,
    database::{Database, get},
    logs::{PATIENCE, is_logged, stop_and_read_log},
    rate_limit,
    wire::{self, Answer},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

async fn with_ids(server: &StorageServer, method: &str, path: &str, ids: &[&str]) -> Answer {
    let ids: Vec<_> = ids.iter().map(|id| ("X-Request-Id", *id)).collect();
    wire::request(server.url(), method, path, &ids, "").await
}

/// The lines of a log in JSON that are whole by now.
fn lines(server: &StorageServer) -> Vec<Value> {
    parsed(&server.log().unwrap())
}

fn parsed(log: &str) -> Vec<Value> {
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    whole.lines().map(parse).collect()
}

/// The line of the access log with this id.
async fn line(server: &StorageServer, id: &str) -> Value {
    let find = || {
        let is_its = |line: &Value| line["target"] == "access" && line["span"]["request_id"] == id;
        lines(server).into_iter().find(is_its)
    };
    until(PATIENCE, || Ok(find().is_some())).await.unwrap();
    find().unwrap()
}

/// Whoever reads the log, or a program that does, would take it for what the server says.
#[tokio::test]
async fn id_of_a_client_looks_like_no_other_field_or_span_of_the_log() {
    let database = Database::sqlite();
    let server = database.serve(&["--access-log"]).await;
    let forged = "x}:request{request_id=other}:status=200";
    with_ids(&server, "GET", "/v1/fences/r", &[forged]).await;
    let quoted = r#"request{request_id="x}:request{request_id=other}:status=200"}"#;
    is_logged(&server, quoted).await;
}

#[tokio::test]
async fn every_answer_has_the_id_of_its_request() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let longest = "x".repeat(128);
    let requests =
        [("GET", "/livez"), ("PUT", "/v1/resources/r"), ("GET", "/nowhere"), ("PATCH", "/metrics")];
    for (method, path) in requests {
        for id in ["a", "~!", &longest] {
            let answer = with_ids(&server, method, path, &[id]).await;
            assert_eq!(answer.header("x-request-id"), Some(id), "{method} {path}");
        }
    }
    let wrong_host = b"GET / HTTP/1.1\r\nHost: evil.example\r\nX-Request-Id: a\r\n\
        Connection: close\r\n\r\n";
    let answer = wire::send(server.url(), wrong_host.to_vec()).await;
    assert_eq!((answer.status, answer.header("x-request-id")), (421, Some("a")));

    // Without a usable one, each request gets another.
    let mut made = Vec::new();
    for ids in [&[][..], &[][..], &[""], &["a b"], &["ü"], &[&format!("{longest}x")], &["a", "b"]]
    {
        let answer = with_ids(&server, "GET", "/livez", ids).await;
        made.push(answer.header("x-request-id").expect("an id").to_owned());
    }
    assert!(made.iter().all(|id| id.len() == 32 && u128::from_str_radix(id, 16).is_ok()));
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 7);
}

#[tokio::test]
async fn access_log_has_a_line_for_each_request_and_no_secrets() {
    let guarded = Guarded::new();
    let all = ["--prefix", "orders/", "--allow", "read,write,claim"];
    let bearer = guarded.identity("orders", &all).await;
    let file = guarded.auth_file();
    let arguments = ["--access-log", "--log-format", "json", "--auth-file", file.to_str().unwrap()];
    let server = guarded.database.serve(&arguments).await;
    let authorization = format!("Bearer {bearer}");
    let put = async |id, path, token| {
        let headers = [
            ("Authorization", authorization.as_str()),
            ("Fencing-Token", token),
            ("Fencing-Holder", "secret-holder"),
            ("X-Request-Id", id),
            ("traceparent", &format!("00-{TRACE}-b7ad6b7169203331-01")),
        ];
        wire::request(server.url(), "PUT", path, &headers, "secret-value").await
    };
    let written = put("one", "/v1/resources/orders/1", "34").await;
    assert_eq!(written.status, 201);
    assert_eq!(put("two", "/v1/resources/orders/1", "33").await.status, 412);
    assert_eq!(put("three", "/v1/resources/invoices/1", "33").await.status, 403);
    let headers = [("X-Request-Id", "four")];
    wire::request(server.url(), "GET", "/v1/resources?prefix=secret-prefix", &headers, "").await;

    let one = line(&server, "one").await;
    assert!(one["duration_ms"].as_f64().is_some_and(|duration| duration > 0.0), "{one}");
    assert_eq!(one["span"]["trace_id"], TRACE);
    for (member, value) in [
        ("level", json!("INFO")),
        ("client", json!("127.0.0.1")),
        ("identity", json!("orders")),
        ("method", json!("PUT")),
        ("path", json!("/v1/resources/orders/1")),
        ("route", json!("/v1/resources/{name}")),
        ("status", json!("201")),
        ("problem", Value::Null),
        ("bytes_in", json!("secret-value".len())),
        ("bytes_out", json!(written.body.len())),
    ] {
        assert_eq!(one[member], value, "{member}");
    }
    assert_eq!(line(&server, "two").await["problem"], "stale-token");
    let three = line(&server, "three").await;
    assert_eq!((&three["problem"], &three["identity"]), (&json!("forbidden"), &json!("orders")));
    let four = line(&server, "four").await;
    assert_eq!((&four["problem"], &four["identity"]), (&json!("unauthenticated"), &Value::Null));
    assert_eq!(four["span"]["trace_id"], Value::Null);
    let log = server.log().unwrap();
    assert!(!log.contains("secret") && !log.contains(&bearer), "{log}");
}

/// A client gives up, for example because the server is slow.
#[tokio::test]
async fn abandoned_requests_are_in_the_access_log() {
    let database = Database::sqlite();
    let server = database.serve(&["--access-log", "--log-format", "json"]).await;
    let head = b"PUT /v1/resources/r HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: gone\r\n\
        Fencing-Token: 1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    let mut half = crate::connections::sending(server.url(), head).await;
    assert_eq!(crate::connections::read_answer(&mut half).await.0, 100);
    drop(half);
    let status = line(&server, "gone").await["status"].clone();
    // Whether the body breaks off or the request is given up first is a race.
    assert!(status == "abandoned" || status == "400", "{status}");
}

#[tokio::test]
async fn lines_of_a_request_have_its_id() {
    let database = Database::sqlite();
    let server = database.serve(&["--enforcement", "report", "--log-format", "json"]).await;
    let headers = |token, id| [("Fencing-Token", token), ("X-Request-Id", id)];
    for (token, id) in [("34", "newer"), ("33", "stale")] {
        wire::request(server.url(), "PUT", "/v1/fences/r", &headers(token, id), "").await;
    }
    let accepted = || {
        lines(&server).into_iter().find(|line| line["message"] == "accepted what would be rejected")
    };
    until(PATIENCE, || Ok(accepted().is_some())).await.unwrap();
    assert_eq!(accepted().unwrap()["span"]["request_id"], "stale");
    // The control: without the option, there is no line for each request.
    let log = stop_and_read_log(server).await;
    assert!(parsed(&log).iter().all(|line| line["target"] != "access"), "{log}");
}

#[tokio::test]
async fn text_is_the_default_format() {
    let database = Database::sqlite();
    let server = database.serve(&["--access-log"]).await;
    get(&server, "/livez").await;
    let is_there = |log: &str| log.lines().any(|line| line.contains("access: client=127.0.0.1"));
    until(PATIENCE, || Ok(is_there(&server.log()?))).await.unwrap();

    let failed = database.run(&["--log-format", "json", "--listen", "nowhere"]).await.failed();
    let last: Value = serde_json::from_str(failed.lines().last().unwrap()).unwrap();
    assert!(last["message"].as_str().unwrap().starts_with("can't listen on nowhere"), "{last}");
}

#[tokio::test]
async fn line_of_a_request_beyond_the_limit_has_its_identity() {
    let guarded = Guarded::new();
    let bearer = guarded.identity("busy", &["--prefix", "", "--allow", "read"]).await;
    let file = guarded.auth_file();
    let limit = ["--requests-per-second", "1", "--access-log", "--log-format", "json"];
    let arguments = [&limit[..], &["--auth-file", file.to_str().unwrap()]].concat();
    let server = guarded.database.serve(&arguments).await;
    let rejected = rate_limit::rejection(&server, &bearer).await;
    let line = line(&server, rejected.header("x-request-id").unwrap()).await;
    assert_eq!((&line["status"], &line["identity"]), (&json!("429"), &json!("busy")), "{line}");
}

//! The lines of requests that were rejected.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};
use testbed::wait::{until, until_async};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{line, lines, serve};
use crate::{
    access::{Guarded, ask},
    database::{Database, offer},
    logs::{PATIENCE, stop},
    wire,
};

#[tokio::test]
async fn rejections_and_what_operators_do_have_a_line_each_without_secrets() {
    let guarded = Guarded::new();
    let all = ["--prefix", "orders/", "--allow", "read,write,claim"];
    let bearer = guarded.identity("orders", &all).await;
    let operator = guarded.identity("operator", &["--prefix", "", "--allow", "operate"]).await;
    let (audit_log, auth_file) = (guarded.database.file("audit.jsonl"), guarded.auth_file());
    let limits = ["--auth-file", auth_file.to_str().unwrap(), "--max-value-bytes", "20"];
    let mut server = serve(&guarded.database, &audit_log, &limits).await;
    let request = async |id, method, path, bearer: &str, further: &[(&str, &str)], value| {
        let authorization = format!("Bearer {bearer}");
        let mut headers = vec![
            ("X-Request-Id", id),
            ("Authorization", authorization.as_str()),
            ("Fencing-Holder", "secret-holder"),
        ];
        headers.extend(further);
        wire::request(server.url(), method, path, &headers, value).await.status
    };
    let (resource, fence) = ("/v1/resources/orders/1", "/v1/fences/orders/1");
    let token = |token| [("Fencing-Token", token)];
    let matched = [("Fencing-Token", "34"), ("If-Match", "\"9\"")];
    let other = [("Fencing-Token", "34"), ("Fencing-Holder", "a")];
    let too_high = token("999999999999999");
    // 1. These are not rejected.
    assert_eq!(request("ok", "PUT", resource, &bearer, &token("34"), "secret-value").await, 201);
    assert_eq!(request("none", "GET", "/v1/fences/orders/2", &bearer, &[], "").await, 404);
    // 2. These are.
    let name = "/v1/resources/{name}";
    let rejected = [
        (401, "unauthenticated", name, request("a", "PUT", resource, "?", &[], "").await),
        (403, "forbidden", name, request("b", "PUT", "/v1/resources/x", &bearer, &[], "").await),
        (403, "token-too-high", name, request("c", "GET", resource, &bearer, &too_high, "").await),
        (
            412,
            "stale-token",
            name,
            request("d", "DELETE", resource, &bearer, &token("33"), "").await,
        ),
        (
            412,
            "version-mismatch",
            name,
            request("e", "PUT", resource, &bearer, &matched, "x").await,
        ),
        (413, "value-too-large", name, {
            request("f", "PUT", resource, &bearer, &token("34"), "secret-value-too-large").await
        }),
        (428, "token-required", name, request("g", "PUT", resource, &bearer, &[], "x").await),
        (405, "method-not-allowed", name, request("h", "PATCH", resource, &bearer, &[], "").await),
        (400, "malformed-holder", name, request("i", "PUT", resource, &bearer, &other, "").await),
    ];
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    for (id, (status, problem, route, answered)) in ids.into_iter().zip(rejected) {
        assert_eq!(answered, status, "{problem}");
        let line = line(&audit_log, id).await;
        let identity = if status == 401 { Value::Null } else { json!("orders") };
        for (member, value) in [
            ("event", json!("rejection")),
            ("identity", identity),
            ("client", json!("127.0.0.1")),
            ("route", json!(route)),
            ("status", json!(status)),
            ("problem", json!(problem)),
            ("resource", json!(if problem == "forbidden" { "x" } else { "orders/1" })),
        ] {
            assert_eq!(line[member], value, "{member} of {problem}: {line}");
        }
    }
    let authorization = format!("Bearer {bearer}");
    let conflict = [
        ("X-Request-Id", "conflict"),
        ("Authorization", &authorization),
        ("Fencing-Token", "34"),
        ("Fencing-Holder", "another"),
    ];
    wire::request(server.url(), "PUT", fence, &conflict, "").await;
    let conflict = line(&audit_log, "conflict").await;
    assert_eq!(
        (&conflict["problem"], &conflict["status"]),
        (&json!("holder-conflict"), &json!(409))
    );
    assert_eq!(
        (&conflict["method"], &conflict["route"]),
        (&json!("PUT"), &json!("/v1/fences/{name}"))
    );
    // 3. An operator sees the metrics, and another client doesn't.
    assert_eq!(request("seen", "GET", "/metrics", &operator, &[], "").await, 200);
    assert_eq!(request("not-seen", "GET", "/metrics", &bearer, &[], "").await, 403);
    let seen = line(&audit_log, "seen").await;
    assert_eq!((&seen["event"], &seen["identity"]), (&json!("operation"), &json!("operator")));
    assert_eq!(line(&audit_log, "not-seen").await["event"], "rejection");

    stop(&mut server).await;
    let all: BTreeSet<_> =
        lines(&audit_log).iter().map(|line| line["request_id"].to_string()).collect();
    assert_eq!(all.len(), ids.len() + 3, "{all:?}");
    let text = fs::read_to_string(&audit_log).unwrap();
    assert!(!text.contains("secret") && !text.contains(&bearer), "{text}");
}

/// Its names are in the body, of which the line has nothing.
#[tokio::test]
async fn rejected_transaction_has_a_line_without_its_body() {
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    let server = serve(&database, &audit_log, &[]).await;
    offer(&server, "PUT", "/v1/resources/r", 34, "x").await;
    let late = json!({"writes": [{
        "resource": "secret", "token": 34, "value": {"text": "secret"},
    }, {
        "resource": "r", "token": 33, "holder": "secret", "value": null,
    }]});
    let headers = [("X-Request-Id", "late"), ("Content-Type", "application/json")];
    wire::request(server.url(), "POST", "/v1/transactions", &headers, late.to_string()).await;
    let line = line(&audit_log, "late").await;
    let named = (&line["route"], &line["problem"]);
    assert_eq!(named, (&json!("/v1/transactions"), &json!("transaction-rejected")));
    assert_eq!((&line["status"], &line["resource"]), (&json!(409), &Value::Null));
    assert!(!line.to_string().contains("secret"), "{line}");
}

#[tokio::test]
async fn client_that_sends_too_much_is_named() {
    let guarded = Guarded::new();
    let bearer = guarded.identity("busy", &["--prefix", "", "--allow", "read"]).await;
    let (audit_log, auth_file) = (guarded.database.file("audit.jsonl"), guarded.auth_file());
    let arguments = ["--auth-file", auth_file.to_str().unwrap(), "--requests-per-second", "1"];
    let server = serve(&guarded.database, &audit_log, &arguments).await;
    let is_rejected =
        async || Ok(ask(&server, &bearer, "GET", "/v1/fences/r", None).await.status == 429);
    until_async(PATIENCE, is_rejected).await.unwrap();
    until(PATIENCE, || Ok(!lines(&audit_log).is_empty())).await.unwrap();
    let line = &lines(&audit_log)[0];
    assert_eq!((&line["identity"], &line["status"]), (&json!("busy"), &json!(429)));
    assert_eq!(line["problem"], "too-many-requests");
}

#[tokio::test]
async fn lines_of_one_client_are_limited_and_the_rest_is_counted() {
    const REJECTED: usize = 2_000;
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    let mut server = serve(&database, &audit_log, &[]).await;
    let one = "PUT /v1/fences/r HTTP/1.1\r\nHost: localhost\r\n";
    let requests = format!("{one}\r\n").repeat(REJECTED - 1) + one + "Connection: close\r\n\r\n";
    let mut connection = wire::connect(server.url()).await;
    let (mut answers, mut sender) = connection.split();
    let mut received = String::new();
    let sent = sender.write_all(requests.as_bytes());
    tokio::try_join!(sent, answers.read_to_string(&mut received)).unwrap();
    assert_eq!(received.matches("HTTP/1.1 428").count(), REJECTED);
    stop(&mut server).await;
    let lines = lines(&audit_log);
    let rejections = lines.iter().filter(|line| line["event"] == "rejection").count();
    let left_out = lines.iter().filter(|line| line["event"] == "left-out");
    let left_out: u64 = left_out
        .inspect(|line| assert_eq!(line["client"], "127.0.0.1", "{line}"))
        .map(|line| line["count"].as_u64().unwrap())
        .sum();
    assert!((10..REJECTED).contains(&rejections), "{rejections}");
    assert_eq!(rejections + usize::try_from(left_out).unwrap(), REJECTED);
}

/// Otherwise it could hide what else it does.
#[tokio::test]
async fn one_problem_of_a_client_leaves_lines_for_its_others() {
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    let server = serve(&database, &audit_log, &[]).await;
    assert_eq!(offer(&server, "PUT", "/v1/fences/r", 34, "").await.status, 200);
    let one = "PUT /v1/fences/r HTTP/1.1\r\nHost: localhost\r\n";
    let other = "X-Request-Id: stale\r\nFencing-Token: 33\r\nConnection: close\r\n\r\n";
    let requests = format!("{one}\r\n").repeat(200) + one + other;
    let answer = wire::send(server.url(), requests.into_bytes()).await;
    assert_eq!(answer.status, 428);
    assert_eq!(line(&audit_log, "stale").await["problem"], "stale-token");
}

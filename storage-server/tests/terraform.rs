//! States of Terraform and OpenTofu, in the protocol of their backend `http`.

pub(crate) mod decisions;
mod paused;
mod rivals;

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{StorageServer, wait::until_async};

use crate::{
    access::Guarded,
    database::get,
    metrics::value as metric,
    wire::{self, Answer},
    world::World,
};

pub(crate) const STATE: &str = "/v1/terraform/net";

const JSON: (&str, &str) = ("Content-Type", "application/json");
const PATIENCE: Duration = Duration::from_secs(60);

fn info(id: &str) -> String {
    let info = json!({"ID": id, "Operation": "OperationTypeApply", "Info": "", "Who": "alice@web-3",
        "Version": "1.11.4", "Created": "2026-11-25T16:23:39.994454377Z", "Path": ""});
    info.to_string()
}

/// Sends a request as Terraform does. A body in it is JSON.
pub(crate) async fn send(server: &StorageServer, method: &str, path: &str, body: &str) -> Answer {
    wire::request(server.url(), method, path, &[JSON], body).await
}

pub(crate) async fn lock(server: &StorageServer, query: &str, id: &str) -> Answer {
    send(server, "LOCK", &format!("{STATE}{query}"), &info(id)).await
}

async fn unlock(server: &StorageServer, id: &str) -> Answer {
    send(server, "UNLOCK", STATE, &info(id)).await
}

async fn upload(server: &StorageServer, id: &str, state: &str) -> Answer {
    send(server, "POST", &format!("{STATE}?ID={id}"), state).await
}

fn state(serial: u64) -> String {
    json!({"version": 4, "serial": serial}).to_string()
}

fn token(locked: &Answer) -> u64 {
    assert_eq!(locked.status, 200, "{locked:?}");
    locked.json()["token"].as_u64().unwrap()
}

/// Acquires the lock once it has expired, and returns the answer to a repeated request.
async fn lock_after_expiry(server: &StorageServer, id: &str) -> Answer {
    let is_acquired = async || Ok(lock(server, "?ttl=1h", id).await.status == 200);
    until_async(PATIENCE, is_acquired).await.unwrap();
    lock(server, "?ttl=1h", id).await
}

#[tokio::test]
async fn malformed_requests_are_rejected() {
    let world = World::on_sqlite(&[]).await;
    let server = &world.server;
    let url = server.url();
    token(&lock(server, "", "a").await);
    for (method, path, body, problem) in [
        ("POST", STATE, "{}", "428 token-required"),
        ("POST", "/v1/terraform/net?ID=", "{}", "400 malformed-request"),
        ("POST", "/v1/terraform/net?ID=a%20b", "{}", "400 malformed-request"),
        ("POST", "/v1/terraform/net?ID=a&ID=a", "{}", "400 malformed-request"),
        ("POST", "/v1/terraform/net?id=a", "{}", "400 malformed-request"),
        ("LOCK", "/v1/terraform/net?ttl=0s", &info("a"), "400 malformed-request"),
        ("LOCK", "/v1/terraform/net?ttl=never", &info("a"), "400 malformed-request"),
        ("POST", "/v1/terraform/net?ID=a", "", "400 malformed-request"),
        ("POST", "/v1/terraform/net?ID=a", "[]", "400 malformed-request"),
        ("POST", "/v1/terraform/net?ID=a", "[null]", "400 malformed-request"),
        ("POST", "/v1/terraform/net?ID=a", "{\"version\": 4", "400 malformed-request"),
        ("POST", "/v1/terraform/net?ID=a", "{} {}", "400 malformed-request"),
        ("POST", "/v1/terraform/net?ID=a", "version: 4", "400 malformed-request"),
        ("LOCK", STATE, "", "400 malformed-request"),
        ("LOCK", STATE, "{\"ID\": \"\"}", "400 malformed-request"),
        ("LOCK", STATE, "{\"Who\": \"a\"}", "400 malformed-request"),
        ("LOCK", STATE, &info(&"a".repeat(129)), "400 malformed-request"),
        ("LOCK", STATE, &" ".repeat(17_000), "413 value-too-large"),
        ("UNLOCK", STATE, "{", "400 malformed-request"),
        ("LOCK", "/v1/terraform/", &info("a"), "400 malformed-name"),
        ("LOCK", "/v1/terraform/a//b", &info("a"), "400 malformed-name"),
        ("PROPFIND", STATE, "", "405 method-not-allowed"),
    ] {
        let answer = send(server, method, path, body).await;
        assert_eq!(answer.problem(), problem, "{method} {path} {answer:?}");
    }
    let allowed = world.ask("PATCH", STATE, &[]).await;
    assert_eq!(allowed.header("allow"), Some("GET,HEAD,POST,DELETE,LOCK,UNLOCK"));
    // A page on the web could send such a body without asking.
    let form = [("Content-Type", "text/plain")];
    let answer = wire::request(url, "POST", "/v1/terraform/net?ID=a", &form, "{}").await;
    assert_eq!(answer.problem(), "415 not-json");
    // A name leaves enough bytes for that of the lock.
    for (bytes, problem) in [(497, "404 not-found"), (498, "404 not-found")] {
        let path = format!("/v1/terraform/{}", "a".repeat(bytes));
        assert_eq!(get(server, &path).await.problem(), problem);
        let locked = send(server, "LOCK", &path, &info("a")).await;
        assert_eq!(locked.status, if bytes == 497 { 200 } else { 400 }, "{locked:?}");
    }
    // A row that no server has written.
    let written = [("Fencing-Token", "1"), ("Fencing-Holder", "a")];
    world.put("/v1/resources/terraform-lock/other", &written, "x").await;
    let answer = send(server, "LOCK", "/v1/terraform/other", &info("a")).await;
    assert_eq!(answer.problem(), "503 unavailable");
    assert_eq!(answer.json()["outcome"], "none");
}

/// As Terraform sends its lock if its methods are set so. A server that reports would store it as a state.
#[tokio::test]
async fn lock_that_is_sent_as_an_upload_replaces_no_state() {
    for enforcement in ["enforce", "report", "off"] {
        let world = World::on_sqlite(&["--enforcement", enforcement]).await;
        let server = &world.server;
        token(&lock(server, "", "a").await);
        assert_eq!(upload(server, "a", &state(1)).await.status, 201);
        for path in [STATE, "/v1/terraform/net?ID=a"] {
            let rejected = send(server, "POST", path, &info("a")).await;
            assert_eq!(rejected.problem(), "400 malformed-request", "{enforcement} {path}");
            let detail = rejected.json()["detail"].to_string();
            assert!(detail.contains("TF_HTTP_LOCK_METHOD"), "{detail}");
        }
        assert_eq!(get(server, STATE).await.text(), state(1), "{enforcement}");
    }
}

#[tokio::test]
async fn password_is_the_bearer_token_of_an_identity() {
    let guarded = Guarded::new();
    let allow = |prefix, allow| ["--prefix", prefix, "--allow", allow];
    let net = guarded.identity("net", &allow("terraform/net", "read,write,claim")).await;
    let planner = guarded.identity("planner", &allow("terraform/", "read,claim")).await;
    let server = guarded.serve().await;
    let ask = async |user: &str, password: &str, method: &str, path: &str, body: &str| {
        let credentials = BASE64_STANDARD.encode(format!("{user}:{password}"));
        let authorization = format!("Basic {credentials}");
        let headers = [("Authorization", authorization.as_str()), JSON];
        let answer = wire::request(server.url(), method, path, &headers, body).await;
        if answer.status < 400 { answer.status.to_string() } else { answer.problem() }
    };
    let upload = format!("{STATE}?ID=a");
    assert_eq!(ask("any", &net, "LOCK", STATE, &info("a")).await, "200");
    assert_eq!(ask("", &net, "POST", &upload, "{}").await, "201");
    assert_eq!(ask("any", &net, "GET", STATE, "").await, "200");
    assert_eq!(ask("any", &net, "LOCK", "/v1/terraform/other", &info("a")).await, "403 forbidden");
    assert_eq!(ask("any", &planner, "GET", STATE, "").await, "200");
    assert_eq!(ask("any", &planner, "LOCK", STATE, &info("b")).await, "423 state-locked");
    assert_eq!(ask("any", &planner, "POST", &upload, "{}").await, "403 forbidden");
    assert_eq!(ask("any", &planner, "DELETE", &upload, "").await, "403 forbidden");
    assert_eq!(ask("any", &net, "UNLOCK", STATE, &info("a")).await, "200");
    for wrong in ["", "wrong", &format!("{net}:"), &net.to_uppercase()] {
        for (method, body) in [("GET", ""), ("LOCK", "{}"), ("UNLOCK", ""), ("POST", "{}")] {
            let answer = ask("net", wrong, method, STATE, body).await;
            assert_eq!(answer, "401 unauthenticated", "{method} {wrong}");
        }
    }
    // Everywhere else, a password is no bearer token.
    let resource = "/v1/resources/terraform/net";
    assert_eq!(ask("any", &net, "GET", resource, "").await, "401 unauthenticated");
    let bearer = format!("Bearer {net}");
    for path in [resource, STATE] {
        let headers = [("Authorization", bearer.as_str())];
        let answer = wire::request(server.url(), "GET", path, &headers, "").await;
        assert_eq!(answer.status, 200, "{path}");
    }
}

#[tokio::test]
async fn metrics_and_audit_log_know_the_methods() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let audit_log = folder.path().join("audit.jsonl");
    let world = World::on_sqlite(&["--audit-log", audit_log.to_str().unwrap()]).await;
    let server = &world.server;
    token(&lock(server, "", "a").await);
    lock(server, "", "b").await;
    unlock(server, "a").await;
    let metrics = get(server, "/metrics").await.text();
    for (method, status, count) in [("LOCK", 200, 1.0), ("LOCK", 423, 1.0), ("UNLOCK", 200, 1.0)] {
        let labels = format!(
            "storage_server_requests_total{{method=\"{method}\",route=\"/v1/terraform/{{name}}\",\
             status=\"{status}\"}}"
        );
        assert_eq!(metric(&metrics, &labels), count, "{labels} in {metrics}");
    }
    let rejections = "storage_server_rejections_total{reason=\"state-locked\"}";
    assert_eq!(metric(&metrics, rejections), 1.0);
    let line = async || Ok(std::fs::read_to_string(&audit_log)?.contains("state-locked"));
    until_async(PATIENCE, line).await.unwrap();
    let lines = std::fs::read_to_string(&audit_log).unwrap();
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&line["method"], &line["status"]), (&json!("LOCK"), &json!(423)));
    assert_eq!(line["resource"], "terraform/net");
    assert_eq!(line["route"], "/v1/terraform/{name}");
}

//! States of Terraform and OpenTofu, in the protocol of their backend `http`.

mod rivals;

use std::{
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{StorageServer, installed, process::Process, wait::until_async};

use crate::{
    access::Guarded,
    database::get,
    metrics::value as metric,
    on_both_databases::on_both_databases,
    wire::{self, Answer},
    world::World,
};

pub(crate) const STATE: &str = "/v1/terraform/net";
/// The resource that keeps its lock.
const LOCK: &str = "/v1/resources/terraform-lock/net";
const FENCE: &str = "/v1/fences/terraform/net";
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

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

/// Until when the lock is held, in milliseconds from now.
async fn held_ms(server: &StorageServer) -> i64 {
    let expires_at_ms = get(server, LOCK).await.json()["expires_at_ms"].as_u64().unwrap();
    expires_at_ms.cast_signed() - now_ms().cast_signed()
}

on_both_databases! {&[] =>
    run_locks_reads_uploads_and_unlocks,
    held_lock_is_refused_with_its_holder,
    late_upload_under_an_expired_lock_is_refused,
    expired_lock_that_nobody_took_still_uploads,
    uploads_renew_the_lock,
    lock_that_was_forced_open_uploads_nothing,
    state_is_deleted_under_the_lock_or_while_nobody_holds_it,
    tokens_are_above_those_of_other_clients,
}

async fn run_locks_reads_uploads_and_unlocks(world: World) {
    let server = &world.server;
    assert_eq!(get(server, STATE).await.problem(), "404 not-found");
    let locked = lock(server, "", "a").await;
    let day_half = 12 * 60 * 60 * 1000;
    assert_eq!(locked.json(), json!({"resource": "terraform/net", "token": 1, "ttl_ms": day_half}));
    // A client without an answer sends the same again.
    assert_eq!(token(&lock(server, "", "a").await), 1);
    assert_eq!(upload(server, "a", &state(1)).await.status, 201);
    assert_eq!(upload(server, "a", &state(2)).await.status, 200);
    let read = get(server, STATE).await;
    assert_eq!((read.status, read.text()), (200, state(2)));
    assert_eq!(read.header("content-type"), Some("application/json"));
    assert_eq!(get(server, "/v1/resources/terraform/net").await.text(), state(2));
    for _ in 0..2 {
        assert_eq!(unlock(server, "a").await.status, 200);
    }
    assert_eq!(upload(server, "a", &state(3)).await.problem(), "409 state-lock-lost");

    // The next lock claims before its client reads.
    assert_eq!(token(&lock(server, "", "b").await), 2);
    let fence = get(server, FENCE).await.json();
    assert_eq!((&fence["token"], &fence["holder"]), (&json!(2), &json!("...")));
    assert_eq!(get(server, STATE).await.text(), state(2));
}

async fn held_lock_is_refused_with_its_holder(world: World) {
    let server = &world.server;
    token(&lock(server, "?ttl=1h", "a").await);
    let refused = lock(server, "", "b").await;
    assert_eq!(refused.problem(), "423 state-locked");
    let problem = refused.json();
    let holder: Value = serde_json::from_str(&info("a")).unwrap();
    for member in ["ID", "Operation", "Who", "Version", "Created"] {
        assert_eq!(problem[member], holder[member], "{member}");
    }
    // Terraform can't parse an empty time, and so on.
    assert!(problem.get("Path").is_none() && problem.get("Info").is_none());
    let detail = problem["detail"].as_str().unwrap();
    let expected =
        "the lock is held by \"alice@web-3\" for \"OperationTypeApply\", and expires in ";
    assert!(detail.starts_with(expected), "{detail}");
    assert_eq!(unlock(server, "b").await.problem(), "409 state-lock-lost");
    assert_eq!(upload(server, "b", &state(1)).await.problem(), "409 state-lock-lost");
    assert_eq!(upload(server, "a", &state(1)).await.status, 201);
}

async fn late_upload_under_an_expired_lock_is_refused(world: World) {
    let server = &world.server;
    assert_eq!(token(&lock(server, "?ttl=1s", "a").await), 1);
    assert_eq!(token(&lock_after_expiry(server, "b").await), 2);
    let late = upload(server, "a", &state(1)).await;
    assert_eq!(late.problem(), "409 state-lock-lost");
    assert_eq!(get(server, STATE).await.status, 404);
    assert_eq!(unlock(server, "a").await.problem(), "409 state-lock-lost");
    assert_eq!(lock(server, "", "a").await.problem(), "423 state-locked");
    assert_eq!(upload(server, "b", &state(2)).await.status, 201);
    assert_eq!(get(server, STATE).await.text(), state(2));
}

/// Nobody has read the state since, so the upload undoes nothing.
async fn expired_lock_that_nobody_took_still_uploads(world: World) {
    let server = &world.server;
    token(&lock(server, "?ttl=1s", "a").await);
    until_async(PATIENCE, async || Ok(held_ms(server).await < 0)).await.unwrap();
    let path = format!("{STATE}?ID=a&ttl=1h");
    assert_eq!(send(server, "POST", &path, &state(1)).await.status, 201);
    assert_eq!(lock(server, "", "b").await.problem(), "423 state-locked");
}

async fn uploads_renew_the_lock(world: World) {
    let server = &world.server;
    let hour = 60 * 60 * 1000;
    let held_until = async || get(server, LOCK).await.json()["expires_at_ms"].as_u64().unwrap();
    token(&lock(server, "?ttl=1h", "a").await);
    assert!((1..=hour).contains(&held_ms(server).await));
    let first = held_until().await;
    let is_later = async || {
        upload(server, "a", &state(1)).await;
        Ok(held_until().await > first)
    };
    until_async(PATIENCE, is_later).await.unwrap();
    assert!(held_ms(server).await <= hour, "the lock keeps its ttl");
    send(server, "POST", &format!("{STATE}?ttl=2h&ID=a"), &state(2)).await;
    assert!(held_ms(server).await > hour, "the address has another ttl");
    token(&lock(server, "?ttl=3h", "a").await);
    assert!(held_ms(server).await > 2 * hour, "the holder renews without an upload");
}

async fn lock_that_was_forced_open_uploads_nothing(world: World) {
    let server = &world.server;
    token(&lock(server, "", "a").await);
    upload(server, "a", &state(1)).await;
    // As OpenTofu does, if the address has the ID: another lock stays.
    let by_id = |id| format!("{STATE}?ID={id}");
    assert_eq!(send(server, "UNLOCK", &by_id("b"), "").await.problem(), "409 state-lock-lost");
    assert_eq!(send(server, "UNLOCK", &by_id("a"), "").await.status, 200);
    assert_eq!(upload(server, "a", &state(2)).await.problem(), "409 state-lock-lost");

    // As Terraform does, which sends no ID.
    token(&lock(server, "", "b").await);
    assert_eq!(send(server, "UNLOCK", STATE, "").await.status, 200);
    assert_eq!(upload(server, "b", &state(2)).await.problem(), "409 state-lock-lost");
    assert_eq!(get(server, STATE).await.text(), state(1));
    assert!(server.log().unwrap().contains("a lock was released without its ID"));
}

async fn state_is_deleted_under_the_lock_or_while_nobody_holds_it(world: World) {
    let server = &world.server;
    token(&lock(server, "", "a").await);
    upload(server, "a", &state(1)).await;
    assert_eq!(send(server, "DELETE", STATE, "").await.problem(), "423 state-locked");
    let by_id = |id| format!("{STATE}?ID={id}");
    assert_eq!(send(server, "DELETE", &by_id("b"), "").await.problem(), "409 state-lock-lost");
    assert_eq!(get(server, STATE).await.text(), state(1));
    assert_eq!(send(server, "DELETE", &by_id("a"), "").await.status, 200);
    assert_eq!(get(server, STATE).await.status, 404);

    // A delete without a lock has a token of its own: the client that paused before it comes too late.
    token(&lock(server, "?ttl=1s", "a").await);
    upload(server, "a", &state(2)).await;
    let deleted = async || Ok(send(server, "DELETE", STATE, "").await.status == 200);
    until_async(PATIENCE, deleted).await.unwrap();
    assert_eq!(upload(server, "a", &state(3)).await.problem(), "409 state-lock-lost");
    assert_eq!(get(server, STATE).await.status, 404);
}

async fn tokens_are_above_those_of_other_clients(world: World) {
    let server = &world.server;
    assert_eq!(token(&lock(server, "", "a").await), 1);
    let claim = [("Fencing-Token", "34")];
    assert_eq!(world.ask("PUT", FENCE, &claim).await.status, 200);
    assert_eq!(upload(server, "a", &state(1)).await.problem(), "409 state-lock-lost");
    // What the client has read is void. A renewal that is rejected does not prolong the lock.
    let before = get(server, LOCK).await.text();
    assert_eq!(lock(server, "", "a").await.problem(), "409 state-lock-lost");
    assert_eq!(get(server, LOCK).await.text(), before);
    unlock(server, "a").await;
    assert_eq!(token(&lock(server, "", "b").await), 35);
}

#[tokio::test]
async fn malformed_requests_are_refused() {
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
    // A name leaves room for that of the lock.
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
    let refusals = "storage_server_refusals_total{reason=\"state-locked\"}";
    assert_eq!(metric(&metrics, refusals), 1.0);
    let line = async || Ok(std::fs::read_to_string(&audit_log)?.contains("state-locked"));
    until_async(PATIENCE, line).await.unwrap();
    let lines = std::fs::read_to_string(&audit_log).unwrap();
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&line["method"], &line["status"]), (&json!("LOCK"), &json!(423)));
    assert_eq!(line["resource"], "terraform/net");
    assert_eq!(line["route"], "/v1/terraform/{name}");
}

/// A client that locks, reads, and waits for a line before it uploads. It prints what it was answered.
const CLIENT: &str = r#"
    curl --silent --fail -X LOCK "$URL?ttl=1s" -d "{\"ID\": \"$ID\"}" > /dev/null || exit 1
    curl --silent "$URL" > /dev/null
    echo locked
    read -r line
    curl --silent --write-out '\n%{http_code}\n' "$URL?ID=$ID" \
        -H 'Content-Type: application/json' -d "{\"by\": \"$ID\"}"
"#;

/// Pauses a client that holds the lock, lets another one lock and upload, and resumes the first.
/// Returns the answer that it gets, and the state after it.
async fn pause_past_the_ttl(enforcement: &str) -> (Vec<String>, String) {
    let world = World::on_sqlite(&["--enforcement", enforcement]).await;
    let server = &world.server;
    installed("curl", &[], "curl").unwrap();
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", CLIENT])
        .env("URL", format!("{}{STATE}", server.url()))
        .env("ID", "client-1");
    let mut client = Process::spawn("client-1", &command, folder.path()).unwrap();
    assert_eq!(client.line(PATIENCE).await.unwrap(), "locked");
    client.pause().await.unwrap();

    lock_after_expiry(server, "client-2").await;
    assert_eq!(upload(server, "client-2", "{\"by\": \"client-2\"}").await.status, 201);

    client.resume().unwrap();
    client.write_line("go on").unwrap();
    let mut printed = Vec::new();
    while let Ok(line) = client.line(PATIENCE).await {
        printed.push(line);
    }
    (printed, get(server, STATE).await.text())
}

#[tokio::test]
async fn client_that_was_paused_past_its_ttl_overwrites_nothing() {
    let (printed, state) = pause_past_the_ttl("enforce").await;
    assert_eq!(printed.last().unwrap(), "409");
    let problem: Value = serde_json::from_str(&printed[0]).unwrap();
    assert_eq!(problem["type"], "/problems/state-lock-lost");
    assert_eq!(state, "{\"by\": \"client-2\"}");
}

/// The control: without the rule, the late client undoes what the other one has uploaded.
#[tokio::test]
async fn without_enforcement_the_paused_client_overwrites_the_state() {
    for enforcement in ["report", "off"] {
        let (printed, state) = pause_past_the_ttl(enforcement).await;
        assert_eq!(printed.last().unwrap(), "200", "{enforcement}");
        assert_eq!(state, "{\"by\": \"client-1\"}", "{enforcement}");
    }
}

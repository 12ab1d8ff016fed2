//! The audit log: who was refused what and why, and what operators did.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use testbed::{
    StorageServer,
    wait::{until, until_async},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::interval,
};

use crate::{
    access::{Guarded, ask},
    connections::{is_logged, read_answer, sending},
    database::{Database, get, offer},
    logs::PATIENCE,
    wire,
};

/// The lines that are whole by now.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits for the line of the request with this id.
async fn line(path: &Path, id: &str) -> Value {
    let find = || lines(path).into_iter().find(|line| line["request_id"] == id);
    until(PATIENCE, || Ok(find().is_some())).await.unwrap_or_else(|_| panic!("{id} has no line"));
    find().unwrap()
}

async fn serve(database: &Database, audit_log: &Path, arguments: &[&str]) -> StorageServer {
    database.serve(&[&["--audit-log", audit_log.to_str().unwrap()], arguments].concat()).await
}

/// Stops the server, so that all lines are written.
async fn stop(mut server: StorageServer) {
    server.process().signal(Signal::TERM).unwrap();
    assert!(server.process().exit(PATIENCE).await.unwrap().success());
}

#[tokio::test]
async fn refusals_and_what_operators_do_have_a_line_each_without_secrets() {
    let guarded = Guarded::new();
    let all = ["--prefix", "orders/", "--allow", "read,write,claim"];
    let bearer = guarded.identity("orders", &all).await;
    let operator = guarded.identity("operator", &["--prefix", "", "--allow", "operate"]).await;
    let (audit_log, auth_file) = (guarded.database.file("audit.jsonl"), guarded.auth_file());
    let limits = ["--auth-file", auth_file.to_str().unwrap(), "--max-value-bytes", "20"];
    let server = serve(&guarded.database, &audit_log, &limits).await;
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
    // 1. These are not refused.
    assert_eq!(request("ok", "PUT", resource, &bearer, &token("34"), "secret-value").await, 201);
    assert_eq!(request("none", "GET", "/v1/fences/orders/2", &bearer, &[], "").await, 404);
    // 2. These are.
    let name = "/v1/resources/{name}";
    let refused = [
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
    for (id, (status, problem, route, answered)) in ids.into_iter().zip(refused) {
        assert_eq!(answered, status, "{problem}");
        let line = line(&audit_log, id).await;
        let identity = if status == 401 { Value::Null } else { json!("orders") };
        for (member, value) in [
            ("event", json!("refusal")),
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
    assert_eq!(line(&audit_log, "not-seen").await["event"], "refusal");

    stop(server).await;
    let all: BTreeSet<_> =
        lines(&audit_log).iter().map(|line| line["request_id"].to_string()).collect();
    assert_eq!(all.len(), ids.len() + 3, "{all:?}");
    let text = fs::read_to_string(&audit_log).unwrap();
    assert!(!text.contains("secret") && !text.contains(&bearer), "{text}");
}

/// Its names are in the body, of which the line has nothing.
#[tokio::test]
async fn refused_transaction_has_a_line_without_its_body() {
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
    assert_eq!(named, (&json!("/v1/transactions"), &json!("transaction-refused")));
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
    let is_refused =
        async || Ok(ask(&server, &bearer, "GET", "/v1/fences/r", None).await.status == 429);
    until_async(PATIENCE, is_refused).await.unwrap();
    until(PATIENCE, || Ok(!lines(&audit_log).is_empty())).await.unwrap();
    let line = &lines(&audit_log)[0];
    assert_eq!((&line["identity"], &line["status"]), (&json!("busy"), &json!(429)));
    assert_eq!(line["problem"], "too-many-requests");
}

#[tokio::test]
async fn lines_of_one_client_are_limited_and_the_rest_is_counted() {
    const REFUSED: usize = 2_000;
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    let server = serve(&database, &audit_log, &[]).await;
    let one = "PUT /v1/fences/r HTTP/1.1\r\nHost: localhost\r\n";
    let requests = format!("{one}\r\n").repeat(REFUSED - 1) + one + "Connection: close\r\n\r\n";
    let mut connection = wire::connect(server.url()).await;
    let (mut answers, mut sender) = connection.split();
    let mut received = String::new();
    let sent = sender.write_all(requests.as_bytes());
    tokio::try_join!(sent, answers.read_to_string(&mut received)).unwrap();
    assert_eq!(received.matches("HTTP/1.1 428").count(), REFUSED);
    stop(server).await;
    let lines = lines(&audit_log);
    let refusals = lines.iter().filter(|line| line["event"] == "refusal").count();
    let left_out = lines.iter().filter(|line| line["event"] == "left-out");
    let left_out: u64 = left_out
        .inspect(|line| assert_eq!(line["client"], "127.0.0.1", "{line}"))
        .map(|line| line["count"].as_u64().unwrap())
        .sum();
    assert!((10..REFUSED).contains(&refusals), "{refusals}");
    assert_eq!(refusals + usize::try_from(left_out).unwrap(), REFUSED);
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

async fn refuse(server: &StorageServer, id: &str) {
    let headers = [("X-Request-Id", id)];
    let answer = wire::request(server.url(), "PUT", "/v1/fences/r", &headers, "").await;
    assert_eq!(answer.status, 428);
}

/// As after a crash, or where the disk was full.
#[tokio::test]
async fn line_after_a_torn_one_is_on_a_line_of_its_own() {
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    fs::write(&audit_log, "{\"torn").unwrap();
    let server = serve(&database, &audit_log, &[]).await;
    for id in ["one", "two"] {
        let before = fs::read_to_string(&audit_log).unwrap().lines().count();
        refuse(&server, id).await;
        let find = || {
            let text = fs::read_to_string(&audit_log)?;
            Ok(text.lines().count() > before && text.ends_with('\n'))
        };
        until(PATIENCE, find).await.unwrap();
        let text = fs::read_to_string(&audit_log).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).expect(&text);
        assert_eq!(last["request_id"], id, "{text}");
        // Another process may tear a line while the server runs.
        let mut file = fs::File::options().append(true).open(&audit_log).unwrap();
        file.write_all(b"{\"torn").unwrap();
    }
}

/// Its operation waits for the database.
#[tokio::test]
async fn request_whose_client_leaves_before_the_decision_has_a_line() {
    let database = Database::postgres().await;
    let audit_log = database.file("audit.jsonl");
    let server = serve(&database, &audit_log, &[]).await;
    assert_eq!(offer(&server, "PUT", "/v1/fences/r", 34, "").await.status, 200);
    let mut rival = PgConnection::connect(&database.url).await.unwrap();
    sqlx::raw_sql("begin; select from storage.resource for update")
        .execute(&mut rival)
        .await
        .unwrap();
    let request = b"PUT /v1/fences/r HTTP/1.1\r\nHost: localhost\r\n\
        Fencing-Token: 35\r\nX-Request-Id: left\r\n\r\n";
    let leaving = sending(server.url(), request).await;
    let is_queued = async || {
        let metrics = get(&server, "/metrics").await.text();
        Ok(metrics.lines().any(|line| line == "storage_server_queued_operations 1"))
    };
    until_async(PATIENCE, is_queued).await.unwrap();
    drop(leaving);
    let line = line(&audit_log, "left").await;
    assert_eq!((&line["event"], &line["method"]), (&json!("abandoned"), &json!("PUT")));
    assert_eq!((&line["resource"], &line["status"]), (&json!("r"), &Value::Null), "{line}");
    rival.close().await.unwrap();
}

/// The client of a body that is slow, but not too slow, is cut off at the end.
#[tokio::test]
async fn last_line_is_written_when_the_drain_times_out() {
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    let mut server = serve(&database, &audit_log, &["--max-value-bytes", "10000000"]).await;
    let head = "PUT /v1/resources/r HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: slow\r\n\
        Fencing-Token: 1\r\nContent-Length: 10000000\r\nExpect: 100-continue\r\n\r\n";
    let mut slow = sending(server.url(), head.as_bytes()).await;
    assert_eq!(read_answer(&mut slow).await.0, 100);
    let send = async {
        let mut pace = interval(Duration::from_millis(100));
        let bytes = [0; 16 << 10];
        while slow.write_all(&bytes).await.is_ok() {
            pace.tick().await;
        }
    };
    let stop = async {
        server.process().signal(Signal::TERM).unwrap();
        assert!(server.process().exit(PATIENCE).await.unwrap().success());
    };
    tokio::join!(send, stop);
    let lines = lines(&audit_log);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let slow = &lines[0];
    assert_eq!((&slow["request_id"], &slow["event"]), (&json!("slow"), &json!("abandoned")));
    assert_eq!((&slow["resource"], &slow["status"]), (&json!("r"), &Value::Null), "{slow}");
}

async fn lost_lines(server: &StorageServer) -> u64 {
    let metrics = get(server, "/metrics").await.text();
    let line =
        metrics.lines().find(|line| line.starts_with("storage_server_audit_lines_lost_total"));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn full_disk_loses_lines_and_no_answers() {
    let database = Database::sqlite();
    let server = serve(&database, Path::new("/dev/full"), &[]).await;
    assert_eq!(lost_lines(&server).await, 0);
    for _ in 0..3 {
        assert_eq!(offer(&server, "PUT", "/v1/fences/a", 34, "").await.status, 200);
        assert_eq!(offer(&server, "PUT", "/v1/fences/a", 33, "").await.status, 412);
    }
    until_async(PATIENCE, async || Ok(lost_lines(&server).await == 3)).await.unwrap();
    is_logged(&server, "the audit log /dev/full can't be written: No space left on device").await;
    assert_eq!(server.log().unwrap().matches("can't be written").count(), 1);
    assert!(server.log().unwrap().contains("Its lines are lost"));
}

#[tokio::test]
async fn server_does_not_start_without_its_audit_log() {
    let database = Database::sqlite();
    let folder = database.folder.path().to_str().unwrap();
    let in_missing = database.file("missing/audit.jsonl");
    for (path, reason) in
        [(folder, "Is a directory"), (in_missing.to_str().unwrap(), "No such file")]
    {
        for arguments in [&["--listen", "127.0.0.1:0"][..], &["--check"]] {
            let error = database.run(&[&["--audit-log", path], arguments].concat()).await.failed();
            let expected = format!("the audit log {path} can't be written: {reason}");
            assert!(error.contains(&expected), "{arguments:?}: {error}");
        }
    }
    // The control. The check creates nothing.
    let audit_log = database.file("audit.jsonl");
    let path = audit_log.to_str().unwrap();
    database.run(&["--audit-log", path, "--check"]).await.printed();
    assert!(!audit_log.exists());
}

/// As logrotate does.
#[tokio::test]
async fn file_that_is_moved_away_is_followed_by_a_new_one() {
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    let server = serve(&database, &audit_log, &[]).await;
    refuse(&server, "old").await;
    line(&audit_log, "old").await;
    let moved: PathBuf = database.file("audit.jsonl.1");
    fs::rename(&audit_log, &moved).unwrap();
    refuse(&server, "new").await;
    line(&audit_log, "new").await;
    assert_eq!((lines(&moved).len(), lines(&audit_log).len()), (1, 1));
    for path in [&moved, &audit_log] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
    }
    // `copytruncate` keeps the file.
    fs::File::options().write(true).open(&audit_log).unwrap().set_len(0).unwrap();
    refuse(&server, "truncated").await;
    line(&audit_log, "truncated").await;
    assert_eq!(lines(&audit_log).len(), 1);
}

/// A tool may put a file there that the server can't write, until somebody mends that.
#[tokio::test]
async fn file_that_becomes_usable_again_is_opened_again() {
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    let server = serve(&database, &audit_log, &[]).await;
    fs::remove_file(&audit_log).unwrap();
    // No permission keeps root out of a file, but root can't write to a folder.
    fs::create_dir(&audit_log).unwrap();
    refuse(&server, "lost").await;
    until_async(PATIENCE, async || Ok(lost_lines(&server).await == 1)).await.unwrap();
    is_logged(&server, "can't be written: Is a directory").await;
    fs::remove_dir(&audit_log).unwrap();
    refuse(&server, "again").await;
    line(&audit_log, "again").await;
    is_logged(&server, "is written again").await;
}

#[tokio::test]
async fn without_a_file_the_log_has_the_lines() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    assert_eq!(offer(&server, "PUT", "/v1/fences/accepted", 34, "").await.status, 200);
    assert_eq!(offer(&server, "PUT", "/v1/fences/accepted", 33, "").await.status, 412);
    is_logged(&server, "audit: event=\"refusal\" client=127.0.0.1 method=\"PUT\"").await;
    assert_eq!(server.log().unwrap().matches("audit: ").count(), 1);
}

#[tokio::test]
async fn commands_that_change_fences_are_recorded() {
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    let auth_file = database.file("auth.toml");
    let run = async |log: &Path, arguments: &[&str]| {
        let log = ["--audit-log", log.to_str().unwrap()];
        database.run(&[&log[..], arguments].concat()).await
    };
    database.run(&["migrate"]).await.printed();
    run(&audit_log, &["fence", "set", "r", "--token", "34", "--holder", "secret"]).await.printed();
    run(&audit_log, &["fence", "set", "r", "--token", "33"]).await.failed();
    run(&audit_log, &["fence", "raise", "--all", "--above", "40"]).await.printed();
    run(&audit_log, &["forget", "r", "--yes"]).await.printed();
    let new = ["auth", "new", "--auth-file", auth_file.to_str().unwrap(), "--name", "orders"];
    let bearer =
        run(&audit_log, &[&new[..], &["--prefix", "", "--allow", "read"]].concat()).await.printed();
    // What changes nothing has no line.
    run(&audit_log, &["fence", "show", "r"]).await.printed();
    run(&audit_log, &["forget", "none", "--yes"]).await.printed();
    let lines = lines(&audit_log);
    let ended: Vec<_> = lines
        .iter()
        .filter(|line| line["outcome"] != "begun")
        .map(|line| json!([line["command"], line["target"], line["token"], line["outcome"]]))
        .collect();
    assert_eq!(
        json!(ended),
        json!([
            ["fence set", "r", 34, "done"],
            ["fence set", "r", 33, "failed"],
            ["fence raise", null, 40, "done"],
            ["forget", "r", null, "done"],
            ["auth new", "orders", null, "done"],
            ["forget", "none", null, "done"],
        ])
    );
    assert_eq!(lines.len(), 2 * ended.len());
    assert!(lines.iter().all(|line| line["user"].is_string() && line["event"] == "command"));
    let text = fs::read_to_string(&audit_log).unwrap();
    assert!(text.contains("Add --force to lower it"), "{text}");
    assert!(!text.contains("secret") && !text.contains(bearer.trim()), "{text}");

    // A command that can't be recorded is not run.
    let error = run(Path::new("/dev/full"), &["fence", "set", "s", "--token", "1"]).await.failed();
    assert!(error.contains("nothing was changed: the audit log /dev/full"), "{error}");
    let shown = database.run(&["fence", "show", "s"]).await.printed();
    assert!(shown.starts_with("s: no fence"), "{shown}");
}

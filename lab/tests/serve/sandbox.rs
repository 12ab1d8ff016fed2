//! Sandboxes: that each action really happens, is recorded, and is refused if it can't be carried out.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use lab::record::RunRecord;
use reqwest::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testbed::wait::until;

use super::{Server, parsed};
use crate::replay::{descendants, explained, wire};

/// All texts of the page.
const TEXTS: &str = include_str!("../../src/page/texts.mjs");

/// A sandbox that is driven over HTTP.
struct Sandbox<'a> {
    server: &'a Server,
    id: String,
}

/// What opens a sandbox in which no lease expires before its end.
pub(super) fn opening(start: &str, fence: &str) -> Value {
    opening_with(start, &json!({"fence": fence}))
}

/// The same with some other settings.
fn opening_with(start: &str, others: &Value) -> Value {
    let mut settings = json!({
        "fence": "on",
        "claims": "on",
        "locks": "redis",
        "store": "sqlite",
        "ttl_ms": 120_000,
    });
    settings.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
    json!({"start": start, "settings": settings})
}

impl<'a> Sandbox<'a> {
    async fn open(server: &'a Server, opening: &Value) -> Self {
        let id = server.started(server.post("/sandboxes", opening)).await;
        Self { server, id }
    }

    /// Requests an action, and returns the answer's status and text.
    async fn request(&self, action: &str) -> (StatusCode, String) {
        let path = format!("/runs/{}/actions", self.id);
        let request = self.server.post(&path, &json!({"action": action}));
        let answer = request.bearer_auth(&self.server.token).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    async fn act(&self, actions: &[&str]) {
        for action in actions {
            let answer = self.request(action).await;
            assert_eq!(answer, (StatusCode::NO_CONTENT, String::new()), "{action}");
        }
    }

    async fn refuses(&self, action: &str, reason: &str) {
        let (status, text) = self.request(action).await;
        assert_eq!(status, StatusCode::CONFLICT, "{action}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert!(answer["detail"].as_str().unwrap().contains(reason), "{action}: {text}");
        // The page says it in the reader's language.
        let key = answer["refused"].as_str().unwrap();
        let is_known =
            TEXTS.contains(&format!("\"{key}\": [")) || TEXTS.contains(&format!(" {key}: ["));
        assert!(is_known, "{action}: {key}");
    }

    /// The events so far, while its servers go on. The start of another client is the last.
    async fn record(&self) -> Value {
        self.act(&["client 3: start"]).await;
        let mut watching = self.server.events(&self.id).send().await.unwrap();
        let mut text = String::new();
        while !text.contains(r#""actor":"client3""#) || !text.ends_with("\n\n") {
            let chunk = watching.chunk().await.unwrap().expect("the run goes on");
            text += &String::from_utf8_lossy(&chunk);
        }
        json!({"events": parsed(&text).0})
    }

    /// Ends the sandbox. Returns its record, and what the page says of it. The page must have known
    /// what the storage would answer to each write.
    async fn end(self) -> (Value, String) {
        self.act(&["sandbox: end"]).await;
        let events = self.server.events(&self.id).send().await.unwrap();
        let (events, end) = parsed(&events.text().await.unwrap());
        let mut record = end.unwrap();
        record["scenario"] = json!("sandbox");
        record["events"] = json!(events);
        let read: RunRecord = serde_json::from_value(record.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), record, "it is a record like any other");
        let explanation = explained(&record).await.unwrap();
        (record, explanation)
    }
}

/// The events of a record with this name.
fn count(record: &Value, event: &str) -> usize {
    let events = record["events"].as_array().unwrap();
    events.iter().filter(|other| other["event"] == event).count()
}

/// A fact of the only world of a record.
fn fact<'a>(record: &'a Value, name: &str) -> &'a Value {
    &record["outcome"].as_object().unwrap().values().next().unwrap()[name]
}

#[tokio::test]
async fn lock_service_that_restarts_empty_makes_two_holders_and_the_fence_rejects_the_first() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &opening("a", "on")).await;
    sandbox.act(&["client 1: acquire", "client 1: read", "lock service: restart"]).await;
    sandbox.act(&["client 2: acquire", "lock service: restart empty"]).await;
    sandbox.act(&["client 2: acquire", "client 2: read", "client 2: write"]).await;
    sandbox.act(&["client 1: write", "client 1: release"]).await;
    let (record, said) = sandbox.end().await;
    let named = |event: &str| count(&record, event);
    assert_eq!(["gave-up", "lock-kept", "lock-forgotten"].map(named), [1; 3], "{record}");
    assert_eq!(fact(&record, "holders_at_once"), 2);
    assert_eq!(fact(&record, "stale_writes_refused"), 1);
    assert_eq!(fact(&record, "updates_lost"), 0);
    assert!(said.ends_with("tasks: holders, reject\n"), "{said}");
}

/// The negative control of the test above.
#[tokio::test]
async fn lock_service_that_restarts_empty_loses_an_update_without_the_fence() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &opening("a", "off")).await;
    sandbox.act(&["client 1: acquire", "client 1: read", "lock service: restart empty"]).await;
    sandbox.act(&["client 2: acquire", "client 2: read", "client 2: write"]).await;
    sandbox.act(&["client 1: write"]).await;
    let (record, said) = sandbox.end().await;
    assert_eq!(fact(&record, "stale_writes_accepted"), 1);
    assert_eq!(fact(&record, "updates_lost"), 1);
    assert!(said.ends_with("tasks: holders, lose\n"), "{said}");
}

#[tokio::test]
async fn clock_that_jumps_lets_33_through_legally_and_without_claims_an_update_is_lost() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &opening_with("a", &json!({"claims": "off"}))).await;
    sandbox.act(&["client 1: acquire", "client 1: read", "lock service: jump the clock"]).await;
    sandbox.act(&["client 2: acquire", "client 2: read", "client 1: write"]).await;
    sandbox.act(&["client 2: write"]).await;
    let (record, said) = sandbox.end().await;
    assert_eq!(fact(&record, "stale_writes_refused"), 0);
    assert_eq!(fact(&record, "updates_lost"), 1);
    assert_eq!(fact(&record, "token"), 34);
    assert!(said.ends_with("tasks: holders, legal, lose\n"), "{said}");
}

#[tokio::test]
async fn replica_that_was_cut_off_issues_a_token_again_and_its_second_holder_is_rejected() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &opening("a", "on")).await;
    sandbox
        .act(&["lock service: cut off the replica", "client 1: acquire", "client 1: read"])
        .await;
    sandbox.act(&["lock service: promote the replica"]).await;
    sandbox.refuses("lock service: promote the replica", "already").await;
    sandbox.act(&["client 2: acquire", "client 2: write", "client 1: write"]).await;
    let (record, _) = sandbox.end().await;
    let is_acquired = |event: &&Value| event["event"] == "acquired";
    let acquired = record["events"].as_array().unwrap().iter().filter(is_acquired);
    let tokens: Vec<_> = acquired.map(|event| event["token"].as_u64().unwrap()).collect();
    assert_eq!(tokens, [33, 33]);
    assert_eq!(fact(&record, "value"), "2: client 1");
    assert_eq!(fact(&record, "stale_writes_refused"), 1);
}

#[tokio::test]
async fn table_of_postgres_rejects_a_claim_and_a_write_with_an_old_token() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &opening_with("a", &json!({"store": "postgres"}))).await;
    sandbox.act(&["client 1: acquire", "client 1: read", "lock service: restart empty"]).await;
    sandbox.act(&["client 2: acquire", "client 2: read", "client 1: write"]).await;
    sandbox.act(&["client 1: read", "client 2: write"]).await;
    let (record, said) = sandbox.end().await;
    assert_eq!(["refused", "claim-refused"].map(|event| count(&record, event)), [3, 1]);
    assert_eq!(fact(&record, "value"), "2: client 2");
    assert!(said.ends_with("tasks: holders, reject\n"), "{said}");
}

/// Whether the lease is over, the lab asks the lock service. An answer that is late ends nothing.
#[tokio::test]
async fn sandbox_goes_on_while_its_lock_service_is_silent() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &opening_with("a", &json!({"ttl_ms": 1_000}))).await;
    sandbox.act(&["client 1: acquire"]).await;
    let is_redis = |process: &u32| {
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        name.trim() == "redis-server"
    };
    let started = processes(server.process.id(), 5).await;
    let servers: Vec<_> = started.into_iter().filter(is_redis).collect();
    assert_eq!(servers.len(), 2, "one and its replica");
    let signal = |signal| {
        for server in &servers {
            kill_process(Pid::from_raw(server.cast_signed()).unwrap(), signal).unwrap();
        }
    };
    signal(Signal::STOP);
    // The lease is over meanwhile, and several answers are too late.
    tokio::time::sleep(Duration::from_secs(4)).await;
    sandbox.refuses("client 2: read", "has no lease").await;
    signal(Signal::CONT);
    sandbox.act(&["client 1: wait until its lease is over", "client 1: release"]).await;
    let (record, _) = sandbox.end().await;
    assert_eq!(["lease-expired", "lease-lost"].map(|event| count(&record, event)), [1, 1]);
}

#[tokio::test]
async fn wrong_actions_are_refused_and_what_does_not_answer_is_reported() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &opening("a", "on")).await;
    for (action, reason) in [
        ("client 1: write", "client 1 has no lease"),
        ("client 5: start", "no more than 4 clients"),
        ("client 4: read", "client 4 has not started"),
        ("client 1: resume", "client 1 is not paused"),
        ("client 1: eat", "no action"),
    ] {
        sandbox.refuses(action, reason).await;
    }
    sandbox.act(&["client 1: acquire", "client 1: pause"]).await;
    sandbox.refuses("client 1: write", "client 1 is paused").await;
    sandbox.act(&["client 1: resume", "client 1: write", "client 1: cut off"]).await;
    sandbox.act(&["client 1: release", "client 1: connect again"]).await;
    sandbox.act(&["client 3: start", "client 3: kill", "lock service: stop"]).await;
    sandbox.refuses("client 3: acquire", "client 3 was killed").await;
    sandbox.refuses("lock service: stop", "does not run").await;
    sandbox.act(&["client 2: acquire", "lock service: restart"]).await;
    let (record, _) = sandbox.end().await;
    assert_eq!(count(&record, "unanswered"), 2, "a release and an acquire: {record}");
    assert_eq!(count(&record, "written"), 1);
}

#[tokio::test]
async fn lease_in_etcd_expires_while_its_client_is_paused() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &with_short_leases("etcd")).await;
    sandbox.refuses("lock service: jump the clock", "can't jump").await;
    check_expiry(sandbox).await;
}

#[tokio::test]
async fn session_in_zookeeper_expires_while_its_client_is_paused() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &with_short_leases("zookeeper")).await;
    sandbox.refuses("lock service: cut off the replica", "no replica").await;
    check_expiry(sandbox).await;
}

#[tokio::test]
async fn lease_in_a_table_expires_while_its_client_is_paused() {
    let server = Server::start();
    check_expiry(Sandbox::open(&server, &with_short_leases("postgres")).await).await;
}

fn with_short_leases(locks: &str) -> Value {
    opening_with("a", &json!({"locks": locks, "ttl_ms": 2_000}))
}

/// Lets a lease expire during a pause, and rejects the write that comes too late.
async fn check_expiry(sandbox: Sandbox<'_>) {
    sandbox.act(&["client 1: acquire", "client 1: read", "client 1: pause"]).await;
    sandbox.act(&["client 1: wait until its lease is over", "client 2: acquire"]).await;
    sandbox.act(&["client 2: read", "client 1: resume", "client 1: write"]).await;
    // etcd keeps nothing of a lock that is over.
    sandbox.act(&["client 2: release", "client 2: acquire"]).await;
    sandbox.act(&["lock service: stop", "lock service: restart"]).await;
    sandbox.act(&["lock service: stop", "lock service: restart empty"]).await;
    let (record, said) = sandbox.end().await;
    let events = record["events"].as_array().unwrap();
    let at = |event: &str| {
        events.iter().position(|other| other["event"] == event && other["actor"] != "client2")
    };
    assert!(at("lease-expired") > at("paused") && at("resumed") > at("lease-expired"));
    let restarts: Vec<_> = events.iter().filter(|event| event["event"] == "restarted").collect();
    assert!(restarts[0]["keys"].as_u64() > Some(0), "{restarts:?}");
    assert_eq!((restarts.len(), &restarts[1]["keys"]), (2, &json!(0)));
    assert_eq!(fact(&record, "stale_writes_refused"), 1);
    assert_eq!(fact(&record, "holders_at_once"), 1, "{record}");
    assert!(said.ends_with("tasks: reject\n"), "{said}");
}

#[tokio::test]
async fn clock_of_the_database_that_jumps_makes_two_holders() {
    let server = Server::start();
    let settings = json!({"locks": "postgres", "store": "postgres"});
    let sandbox = Sandbox::open(&server, &opening_with("a", &settings)).await;
    sandbox.act(&["client 1: acquire", "client 1: read", "lock service: jump the clock"]).await;
    sandbox.act(&["client 2: acquire", "client 2: read", "client 1: write"]).await;
    let (record, said) = sandbox.end().await;
    assert_eq!(fact(&record, "stale_writes_refused"), 1, "{record}");
    assert!(said.ends_with("tasks: holders, reject\n"), "{said}");
}

/// The processes that a lab has started, once they are this many. A child of Redis that writes a file ends
/// soon.
pub(super) async fn processes(lab: u32, count: usize) -> Vec<u32> {
    let mut started = Vec::new();
    let waiting = until(Duration::from_secs(5), || {
        started = descendants(lab);
        Ok(started.len() == count)
    });
    let waited = waiting.await;
    waited.unwrap_or_else(|_| panic!("{started:?} are not {count} processes"));
    started
}

/// What a line of the page prints in a shell.
pub(super) async fn printed(line: &str) -> String {
    let mut shell = Command::new("sh");
    // Without the address of another server.
    shell.args(["-c", line]).env_remove("PGHOST").stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || shell.output().unwrap()).await.unwrap();
    // curl reports its progress there.
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{errors}{}", String::from_utf8_lossy(&output.stdout))
}

/// The lines of the page do what the client has done, on the same servers: they have its token and its
/// holder.
#[tokio::test]
async fn lines_of_the_page_do_the_same_again() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &opening("a", "on")).await;
    sandbox.act(&["client 1: acquire", "client 1: read", "client 1: write"]).await;
    sandbox.act(&["lock service: restart empty", "client 2: acquire", "client 2: read"]).await;
    sandbox.act(&["client 1: write"]).await;
    let record = sandbox.record().await;
    let shown = wire::shown(&record).await;
    let lines = |actor: &str, event: &str| {
        &shown[wire::position(&record, "fence-on-claims-on", actor, event)].lines
    };

    let token = &record["events"]
        [wire::position(&record, "fence-on-claims-on", "client2", "acquired")]["token"];
    let again = printed(lines("client2", "acquired").last().unwrap()).await;
    assert_eq!(again, format!("1\n{token}\n{token}\n"), "it is client 2's already, by this grant");
    let [line] = &lines("client1", "refused")[..] else { panic!("one request") };
    let rejected = printed(line).await;
    assert!(rejected.contains(" 412 Precondition Failed\r\n"), "{line}: {rejected}");
    assert!(rejected.contains("stale-token"), "{rejected}");
    let [line] = &lines("client2", "read")[..] else { panic!("one request") };
    let read = printed(line).await;
    assert!(read.contains(" 200 OK\r\n") && read.ends_with("\r\n1: client 1"), "{line}: {read}");
    // With the newer token, the same write is accepted.
    let write = &lines("client1", "refused")[0];
    let fence = |line: &str| {
        line.split(" -H ")
            .filter(|word| word.contains("fencing-"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (old, new) = (fence(write), fence(line));
    assert_eq!((old.len(), new.len()), (2, 2), "{write} {line}");
    let write = old.iter().zip(&new).fold(write.clone(), |write, (old, new)| {
        let value = |header: &str| header.split('\'').nth(1).unwrap().to_owned();
        write.replace(&value(old), &value(new))
    });
    let written = printed(&write).await;
    let is_second = written.contains(" 200 OK\r\n") && written.contains("\"version\":2");
    assert!(is_second, "{write}: {written}");
    let read = printed(line).await;
    assert!(read.ends_with("\r\n2: client 1"), "{read}");
}

#[tokio::test]
async fn lines_for_etcd_and_sql_do_the_same_again() {
    let server = Server::start();
    let settings = json!({"locks": "etcd", "store": "postgres"});
    let sandbox = Sandbox::open(&server, &opening_with("a", &settings)).await;
    sandbox.act(&["client 1: acquire", "client 1: read", "client 1: write"]).await;
    sandbox.act(&["client 1: release", "client 2: acquire", "client 2: read"]).await;
    let record = sandbox.record().await;
    let shown = wire::shown(&record).await;
    let lines = |actor: &str, event: &str| {
        &shown[wire::position(&record, "fence-on-claims-on", actor, event)].lines
    };

    let [line] = &lines("client1", "written")[..] else { panic!("one line for a transaction") };
    let rejected = printed(line).await;
    assert!(rejected.contains("ERROR") && rejected.contains("stale"), "{line}: {rejected}");
    let [line] = &lines("client2", "read")[..] else { panic!("one line for a transaction") };
    let read = printed(line).await;
    assert!(read.contains("1: client 1") && !read.contains("ERROR"), "{line}: {read}");

    let acquire = lines("client2", "acquired");
    let transaction = acquire.iter().find(|line| line.contains("/v3/kv/txn")).unwrap();
    let answer = printed(transaction).await;
    assert!(answer.contains(" 200 OK\r\n") && answer.contains("\"responses\""), "{answer}");
}

#[tokio::test]
async fn sandbox_that_is_asked_for_twice_starts_once_and_ends_when_it_is_left() {
    let server = Server::start();
    let opening = opening("a", "on");
    let open = || Sandbox::open(&server, &opening);
    let (sandbox, same) = tokio::join!(open(), open());
    assert_eq!(sandbox.id, same.id);
    sandbox.act(&["client 1: acquire"]).await;
    // Two of Redis, a storage server and two clients.
    let started = processes(server.process.id(), 5).await;
    server.leave(&sandbox.id).await;
    server.wait_until_idle(&started).await;
    let (_, end) = parsed(&server.events(&sandbox.id).send().await.unwrap().text().await.unwrap());
    assert_eq!(end, Some(json!({"left": true})));
    sandbox.refuses("client 1: read", "has ended").await;
}

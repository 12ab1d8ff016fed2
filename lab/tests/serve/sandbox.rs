//! Sandboxes: that each action really happens, is recorded, and is rejected if it can't be carried out.

mod lines;
mod lock_services;
mod stores;

use std::{fs, time::Duration};

use lab::record::RunRecord;
use reqwest::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testbed::wait::until;
use tokio::time::timeout;

use super::{Server, parsed};
use crate::replay::{descendants, explained};
pub(super) use lines::printed;

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

    async fn rejects(&self, action: &str, reason: &str) {
        let (status, text) = self.request(action).await;
        assert_eq!(status, StatusCode::CONFLICT, "{action}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert!(answer["detail"].as_str().unwrap().contains(reason), "{action}: {text}");
        // The page says it in the reader's language.
        let key = answer["rejected"].as_str().unwrap();
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

    /// Waits until an event of this kind has happened.
    async fn until_recorded(&self, event: &str) {
        let mut watching = self.server.events(&self.id).send().await.unwrap();
        let (mut text, name) = (String::new(), format!(r#""event":"{event}""#));
        let seen = async {
            while !text.contains(&name) {
                let chunk = watching.chunk().await.unwrap().expect("the run goes on");
                text += &String::from_utf8_lossy(&chunk);
            }
        };
        timeout(Duration::from_secs(120), seen).await.expect(event);
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
    assert_eq!(fact(&record, "stale_writes_rejected"), 1);
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
    assert_eq!(fact(&record, "stale_writes_rejected"), 0);
    assert_eq!(fact(&record, "updates_lost"), 1);
    assert_eq!(fact(&record, "token"), 34);
    assert!(said.ends_with("tasks: holders, legal, lose\n"), "{said}");
}

/// The page's words fit what a hand does, which no scenario does: the script that reads the record checks them.
#[tokio::test]
async fn client_that_acquires_twice_and_checks_its_lease_before_the_clock_jumps_is_explained() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &opening("a", "off")).await;
    sandbox.act(&["client 1: acquire", "client 1: release", "client 1: acquire"]).await;
    sandbox
        .act(&["client 1: read", "client 1: check the lease", "lock service: jump the clock"])
        .await;
    sandbox.act(&["client 2: acquire", "client 2: write", "client 1: write"]).await;
    let (record, said) = sandbox.end().await;
    assert_eq!(fact(&record, "stale_writes_accepted"), 1);
    assert!(said.contains("The newer value is gone"), "{said}");
}

#[tokio::test]
async fn replica_that_was_cut_off_issues_a_token_again_and_its_second_holder_is_rejected() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &opening("a", "on")).await;
    sandbox
        .act(&["lock service: cut off the replica", "client 1: acquire", "client 1: read"])
        .await;
    sandbox.act(&["lock service: promote the replica"]).await;
    sandbox.rejects("lock service: promote the replica", "already").await;
    sandbox.act(&["client 2: acquire", "client 2: write", "client 1: write"]).await;
    let (record, _) = sandbox.end().await;
    let is_acquired = |event: &&Value| event["event"] == "acquired";
    let acquired = record["events"].as_array().unwrap().iter().filter(is_acquired);
    let tokens: Vec<_> = acquired.map(|event| event["token"].as_u64().unwrap()).collect();
    assert_eq!(tokens, [33, 33]);
    assert_eq!(fact(&record, "value"), "2: client 1");
    assert_eq!(fact(&record, "stale_writes_rejected"), 1);
}

/// A client that is paused after its check writes too late. One that is paused before it notices.
#[tokio::test]
async fn check_of_the_lease_helps_only_a_client_that_was_paused_before_it() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &opening_with("a", &json!({"ttl_ms": 4_000}))).await;
    sandbox.act(&["client 1: acquire", "client 1: read", "client 1: check the lease"]).await;
    sandbox.act(&["client 1: pause", "client 1: wait until its lease is over"]).await;
    sandbox.act(&["client 2: acquire", "client 2: read", "client 1: resume"]).await;
    sandbox.act(&["client 1: write", "client 1: check the lease"]).await;
    sandbox.rejects("client 1: write", "has no lease").await;
    let (record, _) = sandbox.end().await;
    let named = |event: &str| count(&record, event);
    assert_eq!(["lease-checked", "lease-over"].map(named), [1, 1], "{record}");
    assert_eq!(fact(&record, "stale_writes_rejected"), 1);
}

/// A check that finds the lease over ends nothing in the lock service, which may be down and have the lock still.
#[tokio::test]
async fn lease_that_a_check_finds_over_is_over_in_the_lock_service_only_when_that_says_so() {
    let server = Server::start();
    let others = json!({"ttl_ms": 2_000, "locks": "etcd"});
    let sandbox = Sandbox::open(&server, &opening_with("a", &others)).await;
    sandbox.act(&["client 1: acquire", "lock service: stop"]).await;
    sandbox.act(&["client 1: wait until its lease is over", "client 1: check the lease"]).await;
    sandbox.act(&["lock service: restart"]).await;
    sandbox.until_recorded("lease-expired").await;
    let (record, _) = sandbox.end().await;
    let events = record["events"].as_array().unwrap();
    let at = |name: &str| events.iter().position(|event| event["event"] == name);
    assert!(at("lease-over") < at("lease-expired"), "{record}");
    assert!(at("restarted") < at("lease-expired"), "{record}");
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
    sandbox.rejects("client 2: read", "has no lease").await;
    signal(Signal::CONT);
    sandbox.act(&["client 1: wait until its lease is over", "client 1: release"]).await;
    let (record, _) = sandbox.end().await;
    assert_eq!(["lease-expired", "lease-lost"].map(|event| count(&record, event)), [1, 1]);
}

#[tokio::test]
async fn wrong_actions_are_rejected_and_what_does_not_answer_is_reported() {
    let server = Server::start();
    let sandbox = Sandbox::open(&server, &opening("a", "on")).await;
    for (action, reason) in [
        ("client 1: write", "client 1 has no lease"),
        ("client 5: start", "no more than 4 clients"),
        ("client 4: read", "client 4 has not started"),
        ("client 1: resume", "client 1 is not paused"),
        ("client 1: eat", "no action"),
    ] {
        sandbox.rejects(action, reason).await;
    }
    sandbox.act(&["client 1: acquire", "client 1: pause"]).await;
    sandbox.rejects("client 1: write", "client 1 is paused").await;
    sandbox.act(&["client 1: resume", "client 1: write", "client 1: cut off"]).await;
    sandbox.act(&["client 1: release", "client 1: connect again"]).await;
    sandbox.act(&["client 3: start", "client 3: kill", "lock service: stop"]).await;
    sandbox.rejects("client 3: acquire", "client 3 was killed").await;
    sandbox.rejects("lock service: stop", "does not run").await;
    sandbox.act(&["client 2: acquire", "lock service: restart"]).await;
    let (record, _) = sandbox.end().await;
    assert_eq!(count(&record, "unanswered"), 2, "a release and an acquire: {record}");
    assert_eq!(count(&record, "written"), 1);
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
    sandbox.rejects("client 1: read", "has ended").await;
}

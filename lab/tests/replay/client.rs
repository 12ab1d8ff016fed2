//! The client that scenarios drive.

use std::{process::Command, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{Redis, process::Process};

const WITHIN: Duration = Duration::from_secs(10);

struct Client {
    process: Process,
    _folder: TempDir,
}

impl Client {
    fn start(lock: &Value) -> Self {
        let setup = json!({
            "name": "client 1", "resource": "seat-12", "lock": lock, "store": "none", "crowd": null,
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
        command.args(["client", &setup.to_string()]);
        let folder = TempDir::new().unwrap();
        let process = Process::spawn("client", &command, folder.path()).unwrap();
        Self { process, _folder: folder }
    }

    /// The next event after a command.
    async fn event(&mut self, command: &Value) -> Value {
        self.process.write_line(&command.to_string()).unwrap();
        serde_json::from_str(&self.process.line(WITHIN).await.unwrap()).unwrap()
    }
}

fn terms(command: &str) -> Value {
    json!({
        "command": command, "ttl_ms": 20_000, "wait_ms": 0, "order": "unordered", "renewal": "off",
    })
}

/// The other side of the scenarios: they are about the pause between two commands, not about a client
/// that could do nothing right.
#[tokio::test]
async fn naive_lock_is_taken_and_given_back_if_nothing_happens_between_the_steps() {
    let redis = Redis::start().await.unwrap();
    let mut client = Client::start(&json!({"key": redis.url()}));
    let set = client.event(&terms("set-without-expiry")).await;
    assert_eq!(set, json!({"token": null, "event": "set-without-expiry"}));
    let expiry = client.event(&json!({"command": "set-expiry", "ttl_ms": 20_000})).await;
    assert_eq!(expiry, json!({"token": null, "event": "acquired", "ttl_ms": 20_000}));
    let expires_in: u64 = redis.command(&["PTTL", "lock:seat-12"]).await.unwrap();
    assert!((1..=20_000).contains(&expires_in), "{expires_in}");

    let compared = client.event(&json!({"command": "compare"})).await;
    assert_eq!(compared, json!({"token": null, "event": "compared", "owner": "client 1"}));
    let deleted = client.event(&json!({"command": "delete"})).await;
    assert_eq!(deleted, json!({"token": null, "event": "deleted", "keys": 1}));
    assert!(!redis.command::<bool>(&["EXISTS", "lock:seat-12"]).await.unwrap());
}

#[tokio::test]
async fn client_does_its_commands_in_order_with_the_next_one_already_on_its_stdin() {
    let redis = Redis::start().await.unwrap();
    let mut client = Client::start(&json!({"redis": redis.url()}));
    let acquired = client.event(&terms("acquire")).await;
    assert_eq!(acquired["event"], "acquired");
    client.process.pause().await.unwrap();
    for command in ["check-lease", "release"] {
        client.process.write_line(&json!({"command": command}).to_string()).unwrap();
    }
    let silence = client.process.line(Duration::from_millis(300)).await;
    assert!(silence.is_err(), "a stopped client does nothing");
    client.process.resume().unwrap();
    for event in ["lease-checked", "released"] {
        let line: Value =
            serde_json::from_str(&client.process.line(WITHIN).await.unwrap()).unwrap();
        assert_eq!(line["event"], event);
    }
}

#[tokio::test]
async fn unknown_command_is_an_error_that_names_it() {
    let mut client = Client::start(&json!("none"));
    client.process.write_line(&json!({"command": "dance"}).to_string()).unwrap();
    assert_eq!(client.process.exit(WITHIN).await.unwrap().code(), Some(2));
    let error = client.process.stderr().unwrap();
    assert!(error.contains("dance"), "{error}");
}

//! The client that scenarios drive.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

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

    /// The next event after a command, without what went over the wire.
    async fn event(&mut self, command: &Value) -> Value {
        self.event_and_wire(command).await.0
    }

    async fn event_and_wire(&mut self, command: &Value) -> (Value, Value) {
        self.process.write_line(&command.to_string()).unwrap();
        let mut event: Value =
            serde_json::from_str(&self.process.line(WITHIN).await.unwrap()).unwrap();
        let wire = event.as_object_mut().unwrap().remove("wire");
        (event, wire.unwrap_or_default())
    }
}

fn terms(command: &str) -> Value {
    json!({
        "command": command, "ttl_ms": 20_000, "wait_ms": 0, "order": "unordered", "renewal": "off",
    })
}

/// The other side of the scenarios: they are about the pause between two commands, not about a
/// client that could do nothing right.
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

/// A server that Redis' own log of commands (MONITOR) confirms.
#[tokio::test]
async fn what_went_over_the_wire_is_what_redis_has_received() {
    let redis = Redis::start().await.unwrap();
    let mut client = Client::start(&json!({"key": redis.url()}));
    client.event(&terms("set-without-expiry")).await;
    let mut monitor = Command::new("redis-cli")
        .arg("-s")
        .arg(redis.socket())
        .arg("MONITOR")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(monitor.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "OK");
    let (_, wire) = client.event_and_wire(&json!({"command": "compare"})).await;
    assert!(lines.next().unwrap().ends_with(r#" "GET" "lock:seat-12""#));
    monitor.kill().unwrap();
    monitor.wait().unwrap();
    let exchange = json!({
        "protocol": "redis",
        "server": redis.socket(),
        "command": ["GET", "lock:seat-12"],
        "answer": "\"client 1\"",
    });
    assert_eq!(wire, json!({"exchanges": [exchange]}));
}

#[tokio::test]
async fn unknown_command_is_an_error_that_names_it() {
    let mut client = Client::start(&json!("none"));
    client.process.write_line(&json!({"command": "dance"}).to_string()).unwrap();
    assert_eq!(client.process.exit(WITHIN).await.unwrap().code(), Some(2));
    let error = client.process.stderr().unwrap();
    assert!(error.contains("dance"), "{error}");
}

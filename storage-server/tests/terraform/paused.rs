//! A client that is paused past its ttl.

use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use testbed::{installed, process::Process};

use super::{PATIENCE, STATE, lock_after_expiry, upload};
use crate::{database::get, world::World};

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

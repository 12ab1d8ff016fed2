//! Pages of real runs. Node.js runs their modules, and a browser runs them as one script.

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};

use lab::page::descriptions;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{REPLAY, lab, replayed, wire};

/// Runs a script of this folder on a record, and returns what it prints. If it fails, that is the error.
pub(super) async fn run_script(arguments: &[&str], record: &Value) -> Result<String, String> {
    let mut command = Command::new("node");
    command.args(arguments).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/replay"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let record = record.to_string();
    let running = move || {
        let mut node = command.spawn().expect("node runs; the package nodejs has it");
        node.stdin.take().unwrap().write_all(record.as_bytes()).unwrap();
        let output = node.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        if output.status.success() { Ok(text) } else { Err(text) }
    };
    tokio::task::spawn_blocking(running).await.unwrap()
}

/// What the page says at the decisive moment of each world, or what it has no words for.
pub(crate) async fn explained(record: &Value) -> Result<String, String> {
    run_script(&["page.mjs", &json!(descriptions()).to_string()], record).await
}

#[tokio::test]
async fn file_that_cannot_be_written_is_an_error_before_the_run() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("none/run.html");
    let output = lab(&[&REPLAY[..], &["--html", path.to_str().unwrap()]].concat()).await;
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(path.to_str().unwrap()) && error.contains("no folder"), "{error}");
    assert!(output.stdout.is_empty(), "it did not run");
}

#[tokio::test]
async fn page_tells_what_is_believed_and_what_is_stored_when_33_arrives() {
    let mut record = replayed("token-33-34").await;
    insta::assert_snapshot!(explained(&record).await.unwrap(), @"
    unfenced: storage: accepts the write with token 33: newer data is lost The storage looks at no token, so it accepts a write that is too late. The newer value is gone, and nobody gets an error. That the client had checked its lease didn't help, because the check came too early.
    redis: free
    client1: believes that it holds the lock: WRONG
    client2: has no lock
    storage: “by client 1” · checks no tokens
    fenced: storage: rejects 33: it has seen 34 The storage compares two numbers: the write brings 33, but 34 was seen before. So the write is too late, and is rejected. The newer value stays, although the client believed in its lock.
    redis: free
    client1: believes that it holds the lock: WRONG
    client2: has no lock
    storage: “by client 2” · rejects tokens below 34
    ");

    // What the clients and their servers really said.
    let script = [
        "EVAL -- Grants the lock ",
        " fenced:{invoice-7}:lock ",
        "\n(integer) 33\n",
        "redis-cli -s /",
    ];
    let write = [
        "PUT http://127.0.0.1:",
        "/v1/resources/invoice-7\n",
        "fencing-token: 33\n",
        "by client 1\n",
    ];
    let rejected = [&write[..], &["\n412 ", "stale-token", "curl -gi -X PUT -H"]].concat();
    let nothing = ["Nothing was recorded for this event."];
    let expected: [(&str, &str, &[&str]); 6] = [
        ("client1", "acquired", &script),
        ("client1", "lease-checked", &nothing),
        ("client1", "paused", &nothing),
        ("redis", "lease-expired", &nothing),
        ("client1", "rejected", &rejected),
        ("storage", "rejected", &rejected),
    ];
    wire::assert_shown(&record, "fenced", &expected).await;
    wire::assert_small(&record);

    // An event that the page does not know is noticed.
    record["events"][3]["event"] = json!("dreamt");
    let problems = explained(&record).await.unwrap_err();
    assert!(problems.contains("dreamt"), "{problems}");
}

#[tokio::test]
async fn run_is_written_as_a_page_that_has_its_record() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run.html");
    let file = path.to_str().unwrap();
    let output = lab(&[&REPLAY[..], &["get-then-del", "--json", "--html", file]].concat()).await;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    let page = fs::read_to_string(&path).unwrap();
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(data["record"], record);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

//! The shell script in the README of the command, which writes under a lock with curl.

use std::{
    fs,
    process::{Command, Output},
};

use testbed::{Redis, StorageServer};

use crate::programs::storage_server;
use crate::{
    command::{assert_failed, command, lock_client, output},
    wire,
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lock-client/examples/append.sh");
const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lock-client/cli/README.md");

#[tokio::test]
async fn concurrent_appends_lose_no_line() {
    let (redis, server) = (
        Redis::start().await.unwrap(),
        StorageServer::start(&storage_server(), &[]).await.unwrap(),
    );
    let (redis_url, storage_url) = (redis.url(), server.url().to_owned());
    let appending = (0..8).map(|number| {
        let line = format!("line {number}");
        let mut run = command(&["run", "r", "--locks", &redis_url, "--", SCRIPT, &line]);
        run.env("FENCED_STORAGE", &storage_url);
        tokio::spawn(output(run))
    });
    for appended in appending.collect::<Vec<_>>() {
        let output = appended.await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let value = value(&server).await;
    let mut lines: Vec<&str> = value.lines().collect();
    lines.sort_unstable();
    let all: Vec<String> = (0..8).map(|number| format!("line {number}")).collect();
    assert_eq!(lines, all);
}

/// Names with characters that mean something in a URL, to curl, or to a shell.
const NAMES: [&str; 14] = [
    "invoice-8#2",
    "invoice-8?version=2",
    "100%",
    "100%25",
    "two words and  two spaces",
    "Übergröße/żółw",
    "orders/42",
    "orders/42/lines#1",
    "invoice-[1-3]",
    "invoice-{1,2}",
    r"back\slash",
    "quotes \" and '",
    "a+b&c=$d;e",
    "~tilde:colon@at!*(^|`<>)",
];

#[tokio::test]
async fn each_name_is_written_to_the_resource_that_its_lock_guards() {
    let (redis, server) = (
        Redis::start().await.unwrap(),
        StorageServer::start(&storage_server(), &[]).await.unwrap(),
    );
    for name in NAMES {
        let mut run = command(&["run", name, "--locks", &redis.url(), "--", SCRIPT, name]);
        run.env("FENCED_STORAGE", server.url());
        let appended = output(run).await;
        assert!(appended.status.success(), "{name}: {appended:?}");
        let read = lock_client(&["get", name, "--storage", server.url()]).await;
        assert_eq!(String::from_utf8_lossy(&read.stdout), format!("{name}\n"), "{name}: {read:?}");
    }
    let listed = wire::request(server.url(), "GET", "/v1/resources", &[], "").await.json();
    let listed = listed["resources"].as_array().unwrap().iter();
    let listed: Vec<&str> = listed.map(|entry| entry["resource"].as_str().unwrap()).collect();
    let mut expected = NAMES;
    expected.sort_unstable();
    assert_eq!(listed, expected, "and no other resource is written");
}

#[tokio::test]
async fn script_with_an_older_token_is_rejected_before_it_writes() {
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    // The control: in the order of their tokens, both write.
    for (token, line) in [("33", "first"), ("34", "second")] {
        assert!(append(&server, token, line).await.status.success());
    }
    let rejected = append(&server, "33", "third").await;
    assert_failed(&rejected, 1, "token 33 is below the fence at 34");
    assert!(rejected.stderr.ends_with(b"\n"), "{rejected:?}");
    assert_eq!(value(&server).await, "first\nsecond\n");
}

#[test]
fn script_is_the_one_in_the_readme() {
    let (script, readme) =
        (fs::read_to_string(SCRIPT).unwrap(), fs::read_to_string(README).unwrap());
    assert!(readme.contains(&format!("```sh\n{script}```")), "{script}");
}

/// Runs the script with a token, and without a lock.
async fn append(server: &StorageServer, token: &str, line: &str) -> Output {
    let mut script = Command::new(SCRIPT);
    script.arg(line).env("FENCED_STORAGE", server.url());
    script.env("FENCING_RESOURCE_PATH", "r").env("FENCING_TOKEN", token);
    script.env("FENCING_HOLDER", token);
    output(script).await
}

async fn value(server: &StorageServer) -> String {
    wire::request(server.url(), "GET", "/v1/resources/r", &[], "").await.text()
}

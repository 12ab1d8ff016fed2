//! The lines that the page shows for what went over the wire.

use std::process::{Command, Stdio};

use serde_json::json;

use super::{Sandbox, opening, opening_with};
use crate::{replay::wire, serve::Server};

/// What a line of the page prints in a shell.
pub(in crate::serve) async fn printed(line: &str) -> String {
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
    let [line] = &lines("client1", "rejected")[..] else { panic!("one request") };
    let rejected = printed(line).await;
    assert!(rejected.contains(" 412 Precondition Failed\r\n"), "{line}: {rejected}");
    assert!(rejected.contains("stale-token"), "{rejected}");
    let [line] = &lines("client2", "read")[..] else { panic!("one request") };
    let read = printed(line).await;
    assert!(read.contains(" 200 OK\r\n") && read.ends_with("\r\n1: client 1"), "{line}: {read}");
    // With the newer token, the same write is accepted.
    let write = &lines("client1", "rejected")[0];
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
    let settings = json!({"locks": "etcd", "store": "postgres-table"});
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

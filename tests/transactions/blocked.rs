//! Transactions that wait for the lock of a row.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use sqlx::Connection;
use testbed::wait::until;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::sleep,
};

use super::{PATIENCE, get, put, transact, transacting, write};
use crate::{
    server_rivals::{observer, open_transaction, until_the_server_waits_for_a_lock},
    wire,
    world::World,
};

#[tokio::test]
async fn others_continue_while_a_transaction_is_blocked() {
    let world = World::on_postgres(&[]).await;
    let (url, postgres) = (world.server.url(), world.postgres.as_ref().unwrap());
    for resource in ["a", "b"] {
        put(url, resource, 1, "one").await;
    }
    let lock = "select from storage.resource where resource = 'b' for update";
    let mut observer = observer(postgres).await;
    let rival = open_transaction(postgres, lock).await;
    let both = json!({"writes": [write("a", 2, "two"), write("b", 2, "two")]});
    let blocked = transacting(url, both);
    until_the_server_waits_for_a_lock(&mut observer).await;
    for number in 0..20 {
        assert_eq!(put(url, "a", 1, "between").await.status, 200, "it has no lock meanwhile");
        let [one, other] = [format!("c/{number}"), format!("d/{number}")];
        let free = json!({"writes": [write(&one, 1, "x"), write(&other, 1, "x")]});
        assert_eq!(transact(url, &free).await.status, 200);
    }
    assert!(!blocked.is_finished());
    rival.close().await.unwrap();
    assert_eq!(blocked.await.unwrap().status, 200);
    assert_eq!(get(url, "a").await.text(), "two");
    assert_eq!(get(url, "b").await.text(), "two");
}

#[tokio::test]
async fn transaction_that_stays_blocked_is_answered_503_with_outcome_none() {
    let world = World::on_postgres(&[]).await;
    let (url, postgres) = (world.server.url(), world.postgres.as_ref().unwrap());
    put(url, "b", 1, "one").await;
    let lock = "select from storage.resource where resource = 'b' for update";
    let rival = open_transaction(postgres, lock).await;
    let both = json!({"writes": [write("a", 2, "two"), write("b", 2, "two")]});
    let answer = transact(url, &both).await;
    assert_eq!(answer.problem(), "503 unavailable");
    assert_eq!(answer.json()["outcome"], "none");
    assert_eq!(answer.header("retry-after"), Some("1"));
    rival.close().await.unwrap();
    assert_eq!(get(url, "a").await.status, 404);
    assert_eq!(get(url, "b").await.text(), "one");
    assert_eq!(transact(url, &both).await.status, 200);
}

/// Clients disconnect while their transactions wait for a lock.
#[tokio::test]
async fn abandoned_transactions_are_not_made() {
    let world = World::on_postgres(&[]).await;
    let (url, postgres) = (world.server.url(), world.postgres.as_ref().unwrap());
    put(url, "b", 1, "one").await;
    let lock = "select from storage.resource where resource = 'b' for update";
    let mut observer = observer(postgres).await;
    let rival = open_transaction(postgres, lock).await;
    let waiting = transacting(url, json!({"writes": [write("a", 2, "x"), write("b", 2, "x")]}));
    until_the_server_waits_for_a_lock(&mut observer).await;
    for number in 0..5 {
        let mut connection = wire::connect(url).await;
        let abandoned = write(&format!("abandoned/{number}"), 1, "x");
        let body = json!({"writes": [abandoned, write("b", 2, "y")]}).to_string();
        let post = format!(
            "POST /v1/transactions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(post.as_bytes()).await.unwrap();
        // The server must have queued it: nothing shows that.
        sleep(Duration::from_millis(20)).await;
        connection.shutdown().await.unwrap();
        // It closes the connection without an answer when it has noticed that its client is gone.
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        assert!(answer.is_empty());
    }
    rival.close().await.unwrap();
    assert_eq!(waiting.await.unwrap().status, 200, "the control: its client waits");
    let mut made = 0;
    for number in 0..5 {
        let read = get(url, &format!("abandoned/{number}")).await;
        made += u32::from(read.status == 200);
    }
    assert!(made <= 1, "only the last may have been in a batch already: {made}");
}

#[tokio::test]
async fn sigterm_answers_a_transaction_that_is_queued() {
    let mut world = World::on_postgres(&[]).await;
    put(world.server.url(), "b", 1, "one").await;
    let lock = "select from storage.resource where resource = 'b' for update";
    let mut observer = observer(world.postgres.as_ref().unwrap()).await;
    let rival = open_transaction(world.postgres.as_ref().unwrap(), lock).await;
    let both = json!({"writes": [write("a", 2, "two"), write("b", 2, "two")]});
    let queued = transacting(world.server.url(), both);
    until_the_server_waits_for_a_lock(&mut observer).await;
    let address = world.server.address();
    world.server.process().signal(Signal::TERM).unwrap();
    until(PATIENCE, || Ok(std::net::TcpStream::connect(address).is_err())).await.unwrap();
    rival.close().await.unwrap();
    assert_eq!(queued.await.unwrap().status, 200);
    let status = world.server.process().exit(PATIENCE).await.unwrap();
    assert_eq!(status.code(), Some(0));
}

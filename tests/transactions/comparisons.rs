//! What a transaction compares with, until its commit, and after it.

use std::sync::Arc;

use serde_json::{Value, json};
use sqlx::Connection;
use testbed::{Postgres, Proxy, StorageServer, wait::until};
use tokio::{sync::Barrier, task::JoinSet, time::timeout};

use super::{PATIENCE, get, put, transact, transacting, version, write};
use crate::{
    programs::storage_server,
    server_rivals::{observer, open_transaction, until_the_server_waits_for_a_lock},
    world::World,
};

/// A rival changes what a transaction compares, and commits while the transaction is being decided.
async fn compared_row_is_locked(rival: &'static str, compared: Value) {
    let world = World::on_postgres(&[]).await;
    let (url, postgres) = (world.server.url(), world.postgres.as_ref().unwrap());
    put(url, "a", 1, "one").await;
    put(url, "b", 1, "one").await;
    let mut observer = observer(postgres).await;
    let mut rival = open_transaction(postgres, rival).await;
    let transaction = json!({"conditions": [compared], "writes": [write("a", 2, "two")]});
    let waiting = transacting(url, transaction);
    until_the_server_waits_for_a_lock(&mut observer).await;
    assert!(!waiting.is_finished());

    // The control: without the condition, it waits for nobody.
    let other = transact(url, &json!({"writes": [write("other", 1, "x")]})).await;
    assert_eq!(other.status, 200);
    sqlx::query("commit").execute(&mut rival).await.unwrap();
    let answer = waiting.await.unwrap();
    assert_eq!(answer.problem(), "412 condition-not-met");
    assert_eq!(get(url, "a").await.text(), "one", "nothing has happened");
    assert_eq!(get(url, "a").await.header("fencing-token"), Some("1"));
}

#[tokio::test]
async fn compared_value_stays_as_it_is_until_the_commit() {
    let rival = "update storage.resource set version = 2 where resource = 'b'";
    compared_row_is_locked(rival, json!({"resource": "b", "version": 1})).await;
}

#[tokio::test]
async fn compared_absence_lasts_until_the_commit() {
    let rival = "insert into storage.resource
            (resource, token, holder, version, content_type, bytes, value_token, value_holder)
        values ('new', 1, '', 1, 'text/plain', 'x', 1, '')";
    compared_row_is_locked(rival, json!({"resource": "new", "version": null})).await;
}

/// Two doctors are on call. Each goes, through a server of its own, if the other one stays.
/// Returns in how many rounds both have gone.
async fn rounds_in_which_both_have_gone(rounds: u64, compares: bool) -> u64 {
    let postgres = Postgres::start().await.unwrap();
    let one = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let other = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let mut both_have_gone = 0;
    for round in 0..rounds {
        let names = [format!("on-call/{round}/a"), format!("on-call/{round}/b")];
        for name in &names {
            assert_eq!(put(one.url(), name, 1, "on call").await.status, 201);
        }
        let all_have_read = Arc::new(Barrier::new(2));
        let mut doctors = JoinSet::new();
        for (server, doctor) in [&one, &other].into_iter().zip(0..) {
            let (url, all_have_read) = (server.url().to_owned(), all_have_read.clone());
            let [own, others] = [names[doctor].clone(), names[1 - doctor].clone()];
            doctors.spawn(async move {
                let read = get(&url, &others).await;
                assert_eq!(read.text(), "on call");
                let compared = json!({"resource": others, "version": version(&read)});
                let conditions = if compares { vec![compared] } else { Vec::new() };
                all_have_read.wait().await;
                let go = json!({"conditions": conditions, "writes": [write(&own, 2, "gone")]});
                transact(&url, &go).await
            });
        }
        let mut gone = 0;
        for answer in doctors.join_all().await {
            match answer.status {
                200 => gone += 1,
                _ => assert_eq!(answer.problem(), "412 condition-not-met"),
            }
        }
        assert!(gone > 0, "the first one may go");
        both_have_gone += u64::from(gone == 2);
    }
    both_have_gone
}

#[tokio::test]
async fn two_servers_never_both_accept_what_each_compares_with_the_other() {
    assert_eq!(rounds_in_which_both_have_gone(50, true).await, 0);
}

/// The control.
#[tokio::test]
async fn without_the_comparison_both_are_accepted() {
    assert_eq!(rounds_in_which_both_have_gone(5, false).await, 5);
}

/// A server is held up before it sends what it compares and writes, in one statement; or between the statement
/// that locks the rows and its commit, after other people's locks were in the way.
async fn paused_transaction_keeps_no_other_server_waiting(under_locks: bool) {
    let postgres = Postgres::start().await.unwrap();
    let proxy = Proxy::start(postgres.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let paused = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    let other = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    put(paused.url(), "a", 1, "one").await;
    put(paused.url(), "b", 1, "one").await;
    // A message of its own, with its length before it.
    let held = proxy.hold(if under_locks { "\0\0\0\u{b}commit" } else { "held value" });
    let lock = "select from storage.resource where resource = 'b' for update";
    let rival = if under_locks { Some(open_transaction(&postgres, lock).await) } else { None };
    let transaction = json!({
        "conditions": [{"resource": "b", "version": 1}], "writes": [write("a", 2, "held value")],
    });
    let waiting = transacting(paused.url(), transaction);
    if let Some(rival) = rival {
        let begins = "idle_in_transaction_session_timeout";
        until(PATIENCE, || Ok(proxy.requests(begins) > 0)).await.unwrap();
        rival.close().await.unwrap();
    }
    let held = timeout(PATIENCE, held.caught()).await.expect("it is sent").unwrap();
    assert_eq!(put(other.url(), "b", 1, "two").await.status, 200, "PostgreSQL has ended it");
    held.deliver();
    let answer = waiting.await.unwrap();
    assert!(["503 unavailable", "412 condition-not-met"].contains(&answer.problem().as_str()));
    assert_eq!(get(other.url(), "a").await.text(), "one");
}

#[tokio::test]
async fn paused_transaction_keeps_no_other_server_waiting_and_does_not_take_effect_later() {
    paused_transaction_keeps_no_other_server_waiting(false).await;
}

#[tokio::test]
async fn transaction_that_is_paused_under_locks_keeps_no_other_server_waiting() {
    paused_transaction_keeps_no_other_server_waiting(true).await;
}

/// The database commits, and its answer is lost.
#[tokio::test]
async fn lost_answer_to_the_commit_is_an_unknown_outcome_and_no_rejection() {
    let postgres = Postgres::start().await.unwrap();
    let proxy = Proxy::start(postgres.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let server = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    let transaction = json!({
        "conditions": [{"resource": "compared", "version": null}],
        "writes": [write("a", 1, "new value"), write("b", 1, "new value")],
    });
    // What is lost before the commit has no effect: the rows are loaded first.
    proxy.lose_reply_to("compared");
    let none = transact(server.url(), &transaction).await;
    assert!(proxy.has_struck());
    assert_eq!(none.problem(), "503 unavailable");
    assert_eq!(none.json()["outcome"], "none");
    assert_eq!(get(server.url(), "a").await.status, 404);

    proxy.lose_reply_to("new value");
    let unknown = transact(server.url(), &transaction).await;
    assert!(proxy.has_struck());
    assert_eq!(unknown.problem(), "503 unavailable");
    assert_eq!(unknown.json()["outcome"], "unknown");
    for resource in ["a", "b"] {
        assert_eq!(get(server.url(), resource).await.text(), "new value", "it had happened");
    }
}

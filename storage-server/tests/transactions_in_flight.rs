//! The memory that transactions take: while their bodies are parsed, while they are queued, and until
//! their answers are read.

use std::time::Duration;

use bytes::Bytes;
use h2::{RecvStream, client::SendRequest};
use hyper::{Request, http::response::Parts};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use testbed::wait::until_async;
use tokio::time::timeout;

use crate::{
    bodies::MEMORY_FOR_ONE,
    database::{Database, get, offer},
    metrics::value,
    transactions::{JSON, transact, write},
    wire,
    world::World,
};

const PATIENCE: Duration = Duration::from_secs(20);
const NAME_BYTES: usize = 500;

fn long_name(number: usize) -> String {
    format!("{number:0NAME_BYTES$}")
}

/// Conditions on 63 resources with long names, which have no values.
fn conditions(version: Option<u64>) -> Vec<Value> {
    (0..63).map(|number| json!({"resource": long_name(number), "version": version})).collect()
}

/// Connects as a client that takes the first bytes of each answer only.
async fn connect(url: &str) -> SendRequest<Bytes> {
    let mut http2 = h2::client::Builder::new();
    http2.initial_window_size(4 << 10);
    let (client, connection) = http2.handshake(wire::connect(url).await).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Sends a transaction, and returns its answer, of which the body is not read yet.
async fn post(
    url: &str,
    client: &SendRequest<Bytes>,
    transaction: &Value,
) -> Result<(Parts, RecvStream), h2::Error> {
    let mut client = client.clone().ready().await?;
    let post = Request::post(format!("{url}/v1/transactions")).header(JSON.0, JSON.1);
    let (answer, mut body) = client.send_request(post.body(()).unwrap(), false)?;
    body.send_data(transaction.to_string().into(), true)?;
    let answer = timeout(PATIENCE, answer).await.expect("no answer")?;
    Ok(answer.into_parts())
}

#[tokio::test]
async fn unread_answers_of_transactions_take_memory() {
    let world = World::on_sqlite(&MEMORY_FOR_ONE).await;
    let url = world.server.url();
    offer(&world.server, "PUT", "/v1/resources/fenced", 34, "x").await;
    let deletes =
        (0..64).map(|number| json!({"resource": long_name(number), "token": 1, "value": null}));
    let accepted = json!({"writes": deletes.collect::<Vec<_>>()});
    let rejected =
        json!({"conditions": conditions(Some(34)), "writes": [write("fenced", 33, "late")]});
    let not_met = json!({"conditions": conditions(Some(34)), "writes": [write("fenced", 34, "x")]});
    for (expected, transaction) in [(200, accepted), (409, rejected), (412, not_met)] {
        let (mut unread, mut answers, mut lost) = (Vec::new(), 0, 0);
        // On a busy machine, the connection may be cut off first: then another one is not read.
        let client = 'attempts: {
            for _ in 0..10 {
                let client = connect(url).await;
                while unread.len() < 32 {
                    let Ok((head, mut body)) = post(url, &client, &transaction).await else {
                        lost += 1;
                        break;
                    };
                    if head.status == 503 {
                        assert_eq!(head.headers["retry-after"], "1");
                        let document = body.data().await.unwrap().unwrap();
                        let document: Value = serde_json::from_slice(&document).unwrap();
                        assert_eq!(document["outcome"], "none");
                        assert_eq!(document["detail"], "too many bytes are in flight");
                        break 'attempts client;
                    }
                    assert_eq!(head.status, expected);
                    answers += 1;
                    unread.push(body);
                }
                assert!(unread.len() < 32, "so many answers {expected} were kept");
                unread.clear();
            }
            panic!("the machine is too busy for a client that does not read");
        };
        assert!(answers > 0);
        if expected == 200 {
            let deleted = get(&world.server, &format!("/v1/fences/{}", long_name(0))).await;
            let version = deleted.json()["version"].as_u64().unwrap();
            assert!((answers..=answers + lost).contains(&version), "{version} beside {answers}");
        }
        // The memory is free again when the answers are given up, and when they were read.
        drop((client, unread));
        let is_answered =
            async || Ok(transact(&world.server, &transaction).await.status == expected);
        until_async(PATIENCE, is_answered).await.unwrap();
        let is_free = async || {
            let metrics = get(&world.server, "/metrics").await.text();
            Ok(value(&metrics, "storage_server_bytes_in_flight{part=\"small-answers\"}") == 0.0)
        };
        until_async(PATIENCE, is_free).await.unwrap();
    }
}

#[tokio::test]
async fn names_of_transactions_take_memory_while_they_are_queued() {
    let database = Database::postgres().await;
    let server = database.serve(&[]).await;
    offer(&server, "PUT", "/v1/resources/locked", 1, "x").await;
    let measured = async || {
        let metrics = get(&server, "/metrics").await.text();
        let bodies = value(&metrics, "storage_server_bytes_in_flight{part=\"small-bodies\"}");
        (value(&metrics, "storage_server_queued_operations"), bodies)
    };
    let mut rival = PgConnection::connect(&database.url).await.unwrap();
    let mut rival = rival.begin().await.unwrap();
    sqlx::query("select from storage.resource for update").execute(&mut *rival).await.unwrap();
    let transaction = json!({"conditions": conditions(None), "writes": [write("locked", 1, "y")]});
    let names_take_memory = async {
        let names = (63 * NAME_BYTES) as f64;
        let are_queued = async || {
            let (queued, bytes) = measured().await;
            Ok(queued == 1.0 && bytes >= names)
        };
        until_async(PATIENCE, are_queued).await.expect("memory for the names");
        rival.rollback().await.unwrap();
    };
    let (answer, ()) = tokio::join!(transact(&server, &transaction), names_take_memory);
    assert_eq!(answer.status, 200);
    let is_free = async || Ok(measured().await == (0.0, 0.0));
    until_async(PATIENCE, is_free).await.unwrap();
}

#[tokio::test]
async fn items_above_the_limit_are_not_parsed() {
    let world = World::on_sqlite(&[]).await;
    let limit = "a transaction has at most 64 conditions and writes";
    let items = |good: usize| {
        let good = (0..good).map(|number| write(&format!("r/{number}"), 1, "x"));
        good.chain([json!(7)]).collect::<Vec<_>>()
    };
    for (good, detail) in [
        (64, "the body is not a transaction: invalid type: integer `7`, expected an object"),
        (65, limit),
        (1000, limit),
    ] {
        let answer = transact(&world.server, &json!({"writes": items(good)})).await;
        assert_eq!(answer.problem(), "400 malformed-request");
        let json = answer.json();
        assert!(json["detail"].as_str().unwrap().starts_with(detail), "{good}: {json}");
    }
    let both =
        json!({"conditions": conditions(None), "writes": [write("a", 1, ""), write("b", 1, "")]});
    assert_eq!(transact(&world.server, &both).await.json()["detail"], limit);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn many_small_items_take_no_more_memory_than_a_value() {
    const BODY_BYTES: usize = 8 << 20;
    let item = r#"{"resource":"","value":null}"#;
    let items = vec![item; BODY_BYTES / (item.len() + 1)].join(",");
    let items = format!(r#"{{"writes":[{items}]}}"#);
    let text = "x".repeat(items.len());
    let value = json!({"writes": [write("", 1, &text)]}).to_string();
    let peak_bytes = async |body: &str| {
        let mut world = World::on_sqlite(&["--max-value-bytes", "33554432"]).await;
        let pid = world.server.process().pid().as_raw_nonzero();
        let answer =
            wire::request(world.server.url(), "POST", "/v1/transactions", &[JSON], body).await;
        assert_eq!(answer.status, 400);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let (_, peak) = status.split_once("VmHWM:").unwrap();
        peak.split_whitespace().next().unwrap().parse::<usize>().unwrap() << 10
    };
    let nothing = peak_bytes("").await;
    let value = peak_bytes(&value).await - nothing;
    let items = peak_bytes(&items).await - nothing;
    assert!(items < value, "{items} bytes for the items, {value} for the value");
}

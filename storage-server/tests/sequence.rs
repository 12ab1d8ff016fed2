//! Writes that may be sent again: `Fencing-Sequence`.

use serde_json::json;
use sqlx::{Connection, SqliteConnection};
use testbed::{Proxy, StorageServer};
use tokio::task::JoinSet;

use crate::{
    database::{Database, on_empty_databases},
    on_both_databases::on_all_stores,
    programs::storage_server,
    wire::{self, Answer},
    world::World,
};

const R: &str = "/v1/resources/r";

on_all_stores!(&[] =>
    repeated_write_gets_the_first_answer,
    other_request_under_the_same_number_is_rejected,
    rejected_condition_stays_rejected,
    number_without_an_answer_is_never_used,
    numbers_start_anew_with_another_token_or_holder,
    tries_at_the_same_time_take_effect_once,
    malformed_number_is_rejected,
    claims_and_reads_have_no_number,
);

mod over_restarts {
    use super::*;

    on_empty_databases! {
        answers_outlive_a_killed_server,
        servers_share_the_answers,
        another_fence_voids_the_answers,
        unreadable_answers_fail_alone_and_are_repaired,
    }
}

/// The client that holds token 34.
async fn ask(world: &World, method: &str, more: &[(&str, &str)], value: &str) -> Answer {
    send(&world.server, method, more, value).await
}

async fn send(server: &StorageServer, method: &str, more: &[(&str, &str)], value: &str) -> Answer {
    let fence = [("Fencing-Token", "34"), ("Fencing-Holder", "h")];
    wire::request(server.url(), method, R, &[&fence, more].concat(), value).await
}

async fn put(server: &StorageServer, number: &str, value: &str) -> Answer {
    send(server, "PUT", &[("Fencing-Sequence", number)], value).await
}

/// The status of an answer, and the version of the write.
fn written(answer: &Answer) -> (u16, u64) {
    (answer.status, answer.json()["version"].as_u64().unwrap())
}

async fn repeated_write_gets_the_first_answer(world: World) {
    let put = async |number, value| put(&world.server, number, value).await;
    let first = put("1", "one").await;
    assert_eq!(written(&first), (201, 1));
    let again = put("1", "one").await;
    assert_eq!((written(&again), &again.body), ((201, 1), &first.body));
    assert_eq!(written(&put("2", "two").await), (200, 2));
    assert_eq!(written(&put("1", "one").await), (201, 1), "also after another write");

    // The answers stay when the value goes.
    for _ in 0..2 {
        let deleted = ask(&world, "DELETE", &[("Fencing-Sequence", "3")], "").await;
        assert_eq!((deleted.status, deleted.body), (204, vec![]));
    }
    assert_eq!(written(&put("2", "two").await), (200, 2));
    assert_eq!(world.ask("GET", R, &[]).await.status, 404, "nothing was written again");
    assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.json()["version"], 3);

    // A write without a number takes effect each time, and forgets no answer.
    for version in 4..6 {
        assert_eq!(ask(&world, "PUT", &[], "plain").await.json()["version"], version);
    }
    assert_eq!(written(&put("1", "one").await), (201, 1));
    assert_eq!(world.ask("GET", R, &[]).await.text(), "plain");
}

async fn other_request_under_the_same_number_is_rejected(world: World) {
    let number = ("Fencing-Sequence", "7");
    assert_eq!(ask(&world, "PUT", &[number], "x").await.status, 201);
    let others = [
        ("PUT", vec![number], "y"),
        ("PUT", vec![number, ("Content-Type", "text/plain")], "x"),
        ("PUT", vec![number, ("If-Match", "\"1\"")], "x"),
        ("PUT", vec![number, ("If-None-Match", "*")], "x"),
        ("DELETE", vec![number], ""),
    ];
    for (method, headers, value) in others {
        let other = ask(&world, method, &headers, value).await;
        assert_eq!(other.problem(), "422 sequence-reused", "{method} {headers:?}");
        assert_eq!(
            (&other.json()["resource"], &other.json()["sequence"]),
            (&json!("r"), &json!(7))
        );
    }
    assert_eq!(written(&ask(&world, "PUT", &[number], "x").await), (201, 1));
}

async fn rejected_condition_stays_rejected(world: World) {
    let put = async |number| {
        let headers = [("Fencing-Sequence", number), ("If-Match", "\"1\"")];
        ask(&world, "PUT", &headers, "conditional").await
    };
    let rejected = put("1").await;
    assert_eq!(rejected.problem(), "412 version-mismatch");
    assert_eq!(ask(&world, "PUT", &[], "plain").await.status, 201);
    let again = put("1").await;
    assert_eq!((again.problem().as_str(), &again.body), ("412 version-mismatch", &rejected.body));
    assert_eq!(world.ask("GET", R, &[]).await.text(), "plain");
    assert_eq!(written(&put("2").await), (200, 2), "the control: the condition is met now");
}

async fn number_without_an_answer_is_never_used(world: World) {
    let put = async |number: u64| put(&world.server, &number.to_string(), "x").await;
    let too_old = async |number: u64, highest: u64, outcome: &str| {
        let answer = put(number).await;
        assert_eq!(answer.problem(), "409 sequence-too-old", "{number}");
        let json = answer.json();
        assert_eq!(
            (&json["sequence"], &json["highest_sequence"]),
            (&json!(number), &json!(highest))
        );
        assert_eq!(
            (&json["resource"], &json["outcome"]),
            (&json!("r"), &json!(outcome)),
            "{number}"
        );
    };
    put(10).await;
    put(20).await;
    for number in [5, 15] {
        too_old(number, 20, "none").await;
    }
    for number in 21..=35 {
        put(number).await;
    }
    // 17 numbers were used, and the last 16 have answers.
    assert_eq!(written(&put(20).await), (200, 2));
    for number in [5, 10, 15] {
        too_old(number, 35, "unknown").await;
    }
    let highest = 999_999_999_999_999;
    assert_eq!(written(&put(highest).await), (200, 18));
    too_old(20, highest, "unknown").await;
    too_old(highest - 1, highest, "none").await;
    assert_eq!(written(&put(highest).await), (200, 18));
}

async fn numbers_start_anew_with_another_token_or_holder(world: World) {
    let put = async |token, holder, value| {
        let headers =
            [("Fencing-Token", token), ("Fencing-Holder", holder), ("Fencing-Sequence", "1")];
        world.put(R, &headers, value).await
    };
    assert_eq!(written(&put("34", "a", "one").await), (201, 1));
    assert_eq!(put("34", "b", "one").await.problem(), "409 holder-conflict");
    assert_eq!(written(&put("35", "a", "one").await), (200, 2), "the same number and value");
    assert_eq!(put("34", "a", "one").await.problem(), "412 stale-token", "though it was written");
    // A claim does so, too.
    world.ask("PUT", "/v1/fences/r", &[("Fencing-Token", "36"), ("Fencing-Holder", "a")]).await;
    assert_eq!(written(&put("36", "a", "one").await), (200, 3));
    assert_eq!(written(&put("36", "a", "one").await), (200, 3));
}

async fn tries_at_the_same_time_take_effect_once(world: World) {
    let mut tries = JoinSet::new();
    for _ in 0..20 {
        let url = world.server.url().to_owned();
        tries.spawn(async move {
            let headers = [("Fencing-Token", "34"), ("Fencing-Sequence", "1")];
            wire::request(&url, "PUT", R, &headers, "x").await
        });
    }
    assert!(tries.join_all().await.iter().all(|answer| written(answer) == (201, 1)));
}

async fn malformed_number_is_rejected(world: World) {
    for wrong in ["0", "", "01", "-1", "1.0", "x", "1000000000000000", "1, 2", "\u{663}"] {
        for method in ["PUT", "DELETE"] {
            let answer = ask(&world, method, &[("Fencing-Sequence", wrong)], "").await;
            assert_eq!(answer.problem(), "400 malformed-sequence", "{wrong:?}");
        }
    }
    let twice = [("Fencing-Sequence", "1"), ("Fencing-Sequence", "1")];
    assert_eq!(ask(&world, "PUT", &twice, "").await.problem(), "400 malformed-sequence");
    assert_eq!(world.ask("GET", "/v1/fences/r", &[]).await.status, 404, "nothing has happened");
}

async fn claims_and_reads_have_no_number(world: World) {
    let headers = [("Fencing-Token", "34"), ("Fencing-Holder", "h"), ("Fencing-Sequence", "1")];
    for (method, path, status) in [("PUT", "/v1/fences/r", 200), ("GET", R, 404), ("PUT", R, 201)] {
        assert_eq!(world.ask(method, path, &headers).await.status, status, "{method} {path}");
    }
}

async fn answers_outlive_a_killed_server(database: Database) {
    let mut server = database.serve(&[]).await;
    assert_eq!(written(&put(&server, "1", "one").await), (201, 1));
    let deleted = send(&server, "DELETE", &[("Fencing-Sequence", "2")], "").await;
    assert_eq!(deleted.status, 204);
    server.process().kill().unwrap();

    let server = database.serve(&[]).await;
    assert_eq!(written(&put(&server, "1", "one").await), (201, 1));
    assert_eq!(put(&server, "2", "one").await.problem(), "422 sequence-reused");
    let deleted = send(&server, "DELETE", &[("Fencing-Sequence", "2")], "").await;
    assert_eq!(deleted.status, 204);
    let control = send(&server, "PUT", &[], "one").await;
    assert_eq!(written(&control), (201, 3), "the control, without a number");
}

async fn servers_share_the_answers(database: Database) {
    let servers = [database.serve(&[]).await, database.serve(&[]).await];
    for round in 1..=20_u64 {
        let (number, value) = (round.to_string(), format!("value {round}"));
        let [one, other] = &servers;
        let (first, second) = tokio::join!(put(one, &number, &value), put(other, &number, &value));
        let status = if round == 1 { 201 } else { 200 };
        assert_eq!((written(&first), written(&second)), ((status, round), (status, round)));
    }
    let control =
        [send(&servers[0], "PUT", &[], "x").await, send(&servers[1], "PUT", &[], "x").await];
    assert_eq!(control.map(|answer| written(&answer).1), [21, 22], "the control, without a number");
}

/// A change of the fence by hand leaves the answers in the row.
async fn another_fence_voids_the_answers(database: Database) {
    database.run(&["migrate"]).await.printed();
    let first =
        "insert into storage.resource (resource, token, holder, version) values ('r', 33, 'h', 7)";
    database.execute(first).await.unwrap();
    let server = database.serve(&[]).await;
    for _ in 0..2 {
        assert_eq!(written(&put(&server, "1", "x").await), (201, 8));
    }
    let changed = "update storage.resource set token = 35, version = 9 where resource = 'r'";
    database.execute(changed).await.unwrap();
    let headers = [("Fencing-Token", "35"), ("Fencing-Holder", "h"), ("Fencing-Sequence", "1")];
    for _ in 0..2 {
        let answer = wire::request(server.url(), "PUT", R, &headers, "x").await;
        assert_eq!(written(&answer), (200, 10));
    }
}

async fn unreadable_answers_fail_alone_and_are_repaired(database: Database) {
    let server = database.serve(&[]).await;
    assert_eq!(put(&server, "1", "x").await.status, 201);
    let shown = database.run(&["fence", "show", "r"]).await.printed();
    assert!(shown.contains("answers to numbered writes: 1"), "{shown}");
    for wrong in ["", "nonsense", "NONSENSE that is long enough to be the answer of a server"] {
        let by_hand = format!("update storage.resource set answers = '{wrong}'");
        database.execute(&by_hand).await.expect_err(wrong);
    }
    let by_hand =
        "update storage.resource set answers = '00000000000000000000000000000000 nonsense'";
    match database.postgres {
        // Only a server's session may write it.
        Some(_) => {
            database.execute(by_hand).await.expect_err("it is no server");
            let as_server = format!("set storage.is_server = 'on'; {by_hand}");
            database.execute(&as_server).await.unwrap();
        }
        None => database.execute(by_hand).await.unwrap(),
    }
    let server = database.serve(&[]).await;
    let answer = put(&server, "1", "x").await;
    assert_eq!(answer.problem(), "503 unavailable");
    assert_eq!(answer.json()["outcome"], "none");
    let detail = answer.json()["detail"].to_string();
    assert!(detail.contains("its answers") && detail.contains("fence set"), "{detail}");
    let shown = database.run(&["fence", "show", "r"]).await.printed();
    assert!(shown.contains("answers to its last numbered writes are unreadable"), "{shown}");

    let set = ["fence", "set", "r", "--token", "34", "--holder", "h"];
    let printed = database.run(&set).await.printed();
    assert!(printed.contains("takes effect again"), "{printed}");
    for _ in 0..2 {
        assert_eq!(written(&put(&server, "1", "x").await), (200, 2));
    }
}

/// A backup has the answers of its moment. What was written after it is lost, and is written again.
#[tokio::test]
async fn backup_has_the_answers() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    put(&server, "1", "one").await;
    database.run(&["backup", "backup.db"]).await.printed();
    assert_eq!(written(&put(&server, "2", "two").await), (200, 2));
    drop(server);
    database.run(&["restore", "backup.db", "--force"]).await.printed();
    let server = database.serve(&[]).await;
    assert_eq!(written(&put(&server, "1", "one").await), (201, 1));
    for _ in 0..2 {
        assert_eq!(written(&put(&server, "2", "two").await), (200, 2));
    }
}

/// The database makes the change, and its answer is lost.
#[tokio::test]
async fn unknown_outcome_is_known_after_a_repeat() {
    let database = Database::postgres().await;
    let postgres = database.postgres.as_ref().unwrap();
    let proxy = Proxy::start(postgres.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let server = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    put(&server, "1", "one").await;
    proxy.lose_reply_to("second value");
    let unknown = put(&server, "2", "second value").await;
    assert!(proxy.has_struck());
    assert_eq!(unknown.json()["outcome"], "unknown");
    assert_eq!(written(&put(&server, "2", "second value").await), (200, 2));
    assert_eq!(written(&put(&server, "3", "three").await), (200, 3));
}

/// Another process has the SQLite file locked.
#[tokio::test]
async fn write_that_was_not_decided_uses_no_number() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let mut somebody = SqliteConnection::connect(&database.url).await.unwrap();
    sqlx::query("begin immediate").execute(&mut somebody).await.unwrap();
    assert_eq!(put(&server, "1", "one").await.json()["outcome"], "none");
    sqlx::query("rollback").execute(&mut somebody).await.unwrap();
    assert_eq!(written(&put(&server, "1", "another").await), (201, 1));
}

/// The answers belong to the fence, and an overruled write is not under it.
#[tokio::test]
async fn overruled_write_has_no_number() {
    let world = World::on_sqlite(&["--enforcement", "off"]).await;
    assert_eq!(written(&put(&world.server, "1", "new").await), (201, 1));
    let stale = [("Fencing-Token", "33"), ("Fencing-Sequence", "1")];
    for version in 2..4 {
        assert_eq!(world.put(R, &stale, "late").await.json()["version"], version);
    }
    assert_eq!(written(&put(&world.server, "1", "new").await), (201, 1));
}

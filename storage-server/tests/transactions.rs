//! Several resources at once: all writes of a transaction, or none.

mod decisions;
mod malformed;

use serde_json::{Value, json};
use testbed::StorageServer;

use crate::{
    access::Guarded,
    database::{get, offer},
    logs::is_logged,
    wire::{self, Answer},
    world::World,
};

const README: &str = include_str!("../README.md");
pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json");

pub(crate) async fn transact(server: &StorageServer, transaction: &Value) -> Answer {
    let body = transaction.to_string();
    wire::request(server.url(), "POST", "/v1/transactions", &[JSON], body).await
}

pub(crate) fn write(resource: &str, token: u64, text: &str) -> Value {
    json!({"resource": resource, "token": token, "value": {"text": text}})
}

async fn text(world: &World, resource: &str) -> String {
    get(&world.server, &format!("/v1/resources/{resource}")).await.text()
}

async fn fence(world: &World, resource: &str) -> Value {
    get(&world.server, &format!("/v1/fences/{resource}")).await.json()["token"].clone()
}

#[tokio::test]
async fn transactions_need_scopes_for_each_resource() {
    let guarded = Guarded::new();
    let orders = ["--prefix", "orders/", "--allow", "read,write", "--token-ceiling", "5000"];
    let bearer = guarded.identity("orders", &orders).await;
    let writer = guarded.identity("writer", &["--prefix", "orders/", "--allow", "write"]).await;
    let server = guarded.serve().await;
    let post = async |bearer: &str, transaction: Value| {
        let authorization = format!("Bearer {bearer}");
        let headers = [JSON, ("Authorization", authorization.as_str())];
        let body = transaction.to_string();
        wire::request(server.url(), "POST", "/v1/transactions", &headers, body).await
    };
    let within = json!({
        "conditions": [{"resource": "orders/2", "version": null}],
        "writes": [write("orders/1", 1, "x")],
    });
    assert_eq!(transact(&server, &within).await.problem(), "401 unauthenticated");
    assert_eq!(post("wrong", within.clone()).await.problem(), "401 unauthenticated");
    assert_eq!(post(&bearer, within.clone()).await.status, 200);

    let forbidden = post(&writer, within).await;
    assert_eq!(forbidden.problem(), "403 forbidden", "it may not read");
    assert_eq!(forbidden.json()["permission"], "read");
    let outside = [
        json!({"writes": [write("orders/1", 2, "x"), write("invoices/1", 1, "x")]}),
        json!({
            "conditions": [{"resource": "invoices/1", "version": null}],
            "writes": [write("orders/1", 2, "x")],
        }),
    ];
    for transaction in outside {
        let answer = post(&bearer, transaction).await;
        assert_eq!(answer.problem(), "403 forbidden");
        assert_eq!(answer.json()["identity"], "orders");
    }
    let file = std::fs::read_to_string(guarded.auth_file()).unwrap();
    assert!(file.contains("token-ceiling = \"5000\""), "the ceiling is a number: {file}");
    let up_to =
        |token| json!({"writes": [write("orders/1", 2, "x"), write("orders/3", token, "x")]});
    let answer = post(&bearer, up_to(5001)).await;
    assert_eq!(answer.problem(), "403 token-too-high", "the ceiling is the scope's own");
    assert_eq!(answer.json()["resource"], "orders/3");
    assert_eq!(answer.json()["ceiling"], 5000);
    let read = [("Authorization", format!("Bearer {bearer}"))];
    let read = read.each_ref().map(|(name, value)| (*name, value.as_str()));
    let value = wire::request(server.url(), "GET", "/v1/fences/orders/1", &read, "").await;
    assert_eq!(value.json()["token"], 1, "nothing has happened");
    assert_eq!(
        post(&writer, up_to(5001)).await.status,
        200,
        "the control: the server's own ceiling"
    );
    assert_eq!(post(&bearer, up_to(5001)).await.status, 200, "the fence is as high by now");
}

#[tokio::test]
async fn report_accepts_and_logs_the_writes_that_it_would_reject() {
    let world = World::on_sqlite(&["--enforcement", "report"]).await;
    offer(&world.server, "PUT", "/v1/resources/a", 34, "a").await;
    let late = json!({"writes": [
        write("a", 33, "late"), {"resource": "b", "value": {"text": "without a token"}},
    ]});
    let answer = transact(&world.server, &late).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["writes"][1]["token"], Value::Null);
    assert_eq!(text(&world, "a").await, "late");
    assert_eq!(fence(&world, "a").await, 34, "the fence never falls");
    is_logged(&world.server, "accepted what would be rejected").await;
    is_logged(&world.server, "has no token resource=b action=\"write\"").await;
    let mismatch = json!({
        "conditions": [{"resource": "a", "version": 1}],
        "writes": [{"resource": "b", "value": {"text": "x"}}],
    });
    let answer = transact(&world.server, &mismatch).await;
    assert_eq!(answer.problem(), "412 condition-not-met", "conditions hold in every mode");
    // A rejected transaction accepts no write. Its warning would come before this one.
    let claimed = world.ask("PUT", "/v1/fences/c", &[]).await;
    assert_eq!(claimed.status, 200);
    is_logged(&world.server, "has no token resource=c action=\"claim\"").await;
    let log = world.server.log().unwrap();
    assert_eq!(log.matches("has no token").count(), 2, "{log}");
}

#[tokio::test]
async fn transactions_are_in_the_metrics() {
    let world = World::on_sqlite(&[]).await;
    offer(&world.server, "PUT", "/v1/resources/a", 34, "a").await;
    transact(&world.server, &json!({"writes": [write("b", 1, "x"), write("c", 1, "x")]})).await;
    transact(&world.server, &json!({"writes": [write("a", 33, "x")]})).await;
    let metrics = get(&world.server, "/metrics").await.text();
    let requests = "storage_server_requests_total{method=\"POST\",route=\"/v1/transactions\"";
    for line in [
        &format!("{requests},status=\"200\"}} 1"),
        &format!("{requests},status=\"409\"}} 1"),
        "storage_server_rejections_total{reason=\"transaction-rejected\"} 1",
        "storage_server_rejections_total{reason=\"condition-not-met\"} 0",
        "storage_server_batch_operations_sum 4.0",
        "storage_server_queued_operations 0",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn transfer_works_as_the_readme_says() {
    let world = World::on_sqlite(&[]).await;
    let (_, section) = README.split_once("### Several resources at once\n").unwrap();
    let (section, _) = section.split_once("\n##").unwrap();
    let blocks = |language: &str| -> Vec<String> {
        let begin = format!("```{language}\n");
        let blocks = section.split(&begin).skip(1);
        blocks.map(|block| block.split_once("```").unwrap().0.to_owned()).collect()
    };
    let (commands, answers) = (blocks("sh"), blocks("json"));
    assert_eq!((commands.len(), answers.len()), (3, 3));
    for (command, expected) in commands.iter().zip(answers) {
        let here = format!("localhost:{}", world.server.address().port());
        let command = command.replace("localhost:8034", &here);
        let ran = tokio::process::Command::new("sh").args(["-euc", &command]).output().await;
        let ran = ran.unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let [answer, expected]: [Value; 2] = [&ran.stdout[..], expected.as_bytes()]
            .map(|text| serde_json::from_slice(text).unwrap());
        assert_eq!(answer, expected);
    }
    assert_eq!([text(&world, "account/a").await, text(&world, "account/b").await], ["70", "30"]);
}

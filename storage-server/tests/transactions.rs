//! Several resources at once: all writes of a transaction, or none.

use serde_json::{Value, json};
use testbed::StorageServer;

use crate::{
    access::Guarded,
    connections::is_logged,
    database::{get, offer},
    on_both_databases::on_both_databases,
    wire::{self, Answer},
    world::World,
};

const README: &str = include_str!("../README.md");
pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json");

on_both_databases!(&[] =>
    transfer_writes_both_accounts_or_none,
    refused_transaction_advances_no_fence,
    conditions_are_compared_with_the_version,
    null_deletes_and_keeps_the_fence,
    values_have_text_or_base64,
    refused_token_comes_before_a_condition,
    transactions_at_once_are_all_decided,
);

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

async fn transfer_writes_both_accounts_or_none(world: World) {
    let holder = "0123456789abcdef0123456789abcdef";
    let open = json!({"writes": [
        {"resource": "account/b", "token": 7, "holder": holder,
         "value": {"content_type": "text/plain", "text": "0"}},
        {"resource": "account/a", "token": 33, "holder": "", "value": {"text": "100"}},
    ]});
    let answer = transact(&world.server, &open).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.json(),
        json!({"conditions": [], "writes": [
            {"resource": "account/b", "decision": "accepted", "token": 7, "holder": holder,
             "version": 1},
            {"resource": "account/a", "decision": "accepted", "token": 33, "holder": "",
             "version": 1},
        ]})
    );
    let value = get(&world.server, "/v1/resources/account/b").await;
    assert_eq!(value.header("content-type"), Some("text/plain"));
    assert_eq!((value.header("fencing-token"), value.header("etag")), (Some("7"), Some("\"1\"")));
    assert_eq!(value.header("fencing-holder"), Some("01234567..."));

    let transfer = json!({
        "conditions": [
            {"resource": "account/a", "version": 1}, {"resource": "account/b", "version": 1},
        ],
        "writes": [write("account/a", 34, "70"), {
            "resource": "account/b", "token": 7, "holder": holder, "value": {"text": "30"},
        }],
    });
    assert_eq!(transact(&world.server, &transfer).await.status, 200);
    assert_eq!([text(&world, "account/a").await, text(&world, "account/b").await], ["70", "30"]);

    // The client that paused with token 33.
    let late = json!({"writes": [write("account/a", 33, "90"), {
        "resource": "account/b", "token": 8, "value": {"text": "10"},
    }]});
    let answer = transact(&world.server, &late).await;
    assert_eq!(answer.problem(), "409 transaction-refused");
    assert_eq!(
        answer.json()["writes"],
        json!([
            {"resource": "account/a", "decision": "stale-token", "token": 33, "highest_token": 34},
            {"resource": "account/b", "decision": "accepted", "token": 8},
        ])
    );
    assert_eq!([text(&world, "account/a").await, text(&world, "account/b").await], ["70", "30"]);
    assert_eq!(fence(&world, "account/b").await, 7);
}

async fn refused_transaction_advances_no_fence(world: World) {
    offer(&world.server, "PUT", "/v1/resources/b", 34, "b").await;
    let theirs = [("Fencing-Token", "5"), ("Fencing-Holder", "somebody-else")];
    world.put("/v1/resources/c", &theirs, "c").await;
    let mixed = json!({"writes": [write("a", 9, "x"), write("b", 33, "x"), write("c", 5, "x")]});
    let answer = transact(&world.server, &mixed).await;
    assert_eq!(answer.problem(), "409 transaction-refused");
    assert_eq!(
        answer.json()["writes"],
        json!([
            {"resource": "a", "decision": "accepted", "token": 9},
            {"resource": "b", "decision": "stale-token", "token": 33, "highest_token": 34},
            {"resource": "c", "decision": "holder-conflict", "token": 5, "highest_token": 5},
        ])
    );
    assert!(!answer.text().contains("somebody-else"), "an error shows no holder");
    assert_eq!(get(&world.server, "/v1/fences/a").await.problem(), "404 not-found");
    assert_eq!([text(&world, "b").await, text(&world, "c").await], ["b", "c"]);
    assert_eq!(fence(&world, "b").await, 34);

    let too_high = json!({"writes": [write("a", 1, "x"), write("b", 999_999_999_999_999, "x")]});
    let answer = transact(&world.server, &too_high).await;
    assert_eq!(answer.problem(), "403 token-too-high");
    assert_eq!(answer.json()["resource"], "b");
    assert_eq!(answer.json()["writes"][0]["decision"], "accepted");
    assert_eq!(answer.json()["writes"][1]["decision"], "token-too-high");
    assert_eq!(answer.json()["writes"][1]["ceiling"], answer.json()["ceiling"]);
    assert_eq!(get(&world.server, "/v1/fences/a").await.problem(), "404 not-found");

    // The control: the same write by itself claims.
    assert_eq!(offer(&world.server, "PUT", "/v1/fences/a", 9, "").await.status, 200);
    assert_eq!(fence(&world, "a").await, 9);
}

async fn conditions_are_compared_with_the_version(world: World) {
    offer(&world.server, "PUT", "/v1/resources/at-2", 1, "x").await;
    offer(&world.server, "PUT", "/v1/resources/at-2", 1, "y").await;
    offer(&world.server, "PUT", "/v1/resources/deleted", 1, "x").await;
    offer(&world.server, "DELETE", "/v1/resources/deleted", 1, "").await;
    offer(&world.server, "PUT", "/v1/fences/claimed", 1, "").await;
    let mut token = 0;
    for (resource, version, is_met) in [
        ("at-2", json!(2), true),
        ("at-2", json!(1), false),
        ("at-2", json!(3), false),
        ("at-2", json!(null), false),
        ("at-2", json!(0), false),
        ("never", json!(null), true),
        ("never", json!(0), true),
        ("never", json!(1), false),
        ("claimed", json!(null), true),
        ("deleted", json!(null), true),
        ("deleted", json!(2), false),
    ] {
        token += 1;
        let transaction = json!({
            "conditions": [{"resource": resource, "version": version}],
            "writes": [write("w", token, "x")],
        });
        let answer = transact(&world.server, &transaction).await;
        let at = if resource == "at-2" { json!(2) } else { json!(null) };
        let condition = json!({"resource": resource, "version": at, "met": is_met});
        assert_eq!(answer.json()["conditions"], json!([condition]));
        if is_met {
            assert_eq!(answer.status, 200, "{condition}");
            assert_eq!(fence(&world, "w").await, token);
        } else {
            assert_eq!(answer.problem(), "412 condition-not-met", "{condition}");
            assert_ne!(fence(&world, "w").await, token, "nothing has happened");
        }
    }
    for resource in ["never", "deleted"] {
        let path = format!("/v1/resources/{resource}");
        assert_eq!(get(&world.server, &path).await.problem(), "404 not-found");
    }
    assert_eq!(get(&world.server, "/v1/fences/never").await.problem(), "404 not-found");
    let first = offer(&world.server, "PUT", "/v1/resources/never", 1, "x").await;
    assert_eq!((first.status, &first.json()["version"]), (201, &json!(1)));
}

async fn null_deletes_and_keeps_the_fence(world: World) {
    offer(&world.server, "PUT", "/v1/resources/old", 1, "x").await;
    let rename = json!({
        "conditions": [{"resource": "new", "version": null}, {"resource": "old", "version": 1}],
        "writes": [
            {"resource": "old", "token": 34, "value": null}, write("new", 1, "x"),
        ],
    });
    let answer = transact(&world.server, &rename).await;
    assert_eq!(answer.json()["writes"][0]["version"], 2);
    assert_eq!(get(&world.server, "/v1/resources/old").await.problem(), "404 not-found");
    assert_eq!(text(&world, "new").await, "x");
    let late = offer(&world.server, "PUT", "/v1/resources/old", 33, "late").await;
    assert_eq!(late.problem(), "412 stale-token");
    let again = transact(&world.server, &rename).await;
    assert_eq!(again.problem(), "412 condition-not-met");
    let met = [0, 1].map(|condition| again.json()["conditions"][condition]["met"].clone());
    assert_eq!(met, [false, false], "every decision is shown");
}

async fn values_have_text_or_base64(world: World) {
    let writes = json!([
        {"resource": "bytes", "token": 1, "value":
            {"base64": "AP+A", "content_type": "image/x-odd; a=\"b\""}},
        {"resource": "text", "token": 1, "value": {"text": "\u{1f422}\n"}},
        {"resource": "empty", "token": 1, "value": {"text": ""}},
    ]);
    assert_eq!(transact(&world.server, &json!({"writes": writes})).await.status, 200);
    let bytes = get(&world.server, "/v1/resources/bytes").await;
    assert_eq!(bytes.body, [0, 255, 128]);
    assert_eq!(bytes.header("content-type"), Some("image/x-odd; a=\"b\""));
    let text = get(&world.server, "/v1/resources/text").await;
    assert_eq!(text.text(), "\u{1f422}\n");
    assert_eq!(text.header("content-type"), Some("application/octet-stream"), "as for a PUT");
    let empty = get(&world.server, "/v1/resources/empty").await;
    assert_eq!((empty.status, empty.body.as_slice()), (200, b"".as_slice()));
}

async fn refused_token_comes_before_a_condition(world: World) {
    offer(&world.server, "PUT", "/v1/resources/a", 34, "a").await;
    let both = json!({
        "conditions": [{"resource": "b", "version": 7}], "writes": [write("a", 33, "x")],
    });
    let answer = transact(&world.server, &both).await;
    assert_eq!(answer.problem(), "409 transaction-refused");
    assert_eq!(answer.json()["conditions"][0]["met"], false);
    assert_eq!(answer.json()["writes"][0]["decision"], "stale-token");
}

/// Transactions and writes meet on the same resources, and each is decided.
async fn transactions_at_once_are_all_decided(world: World) {
    let mut requests = tokio::task::JoinSet::new();
    for number in 0..100 {
        let url = world.server.url().to_owned();
        let (one, other) = (format!("r/{}", number % 5), format!("r/{}", (number + 1) % 5));
        let body = match number % 4 {
            0 => json!({"writes": [write(&one, 1, "x")]}),
            _ => json!({"writes": [write(&other, 1, "x"), write(&one, 1, "x")]}),
        };
        requests.spawn(async move {
            let answer = wire::request(&url, "POST", "/v1/transactions", &[JSON], body.to_string());
            assert_eq!(answer.await.status, 200);
            let path = format!("/v1/resources/{one}");
            let headers = [("Fencing-Token", "1")];
            assert_eq!(wire::request(&url, "PUT", &path, &headers, "y").await.status, 200);
        });
    }
    requests.join_all().await;
    let mut versions = 0;
    for number in 0..5 {
        let fence = get(&world.server, &format!("/v1/fences/r/{number}")).await;
        versions += fence.json()["version"].as_u64().unwrap();
    }
    assert_eq!(versions, 75 * 2 + 25 + 100, "every write took effect once");
}

#[tokio::test]
async fn malformed_transactions_are_refused() {
    let world = World::on_sqlite(&["--max-value-bytes", "20000"]).await;
    let good = json!({"writes": [write("a", 1, "x")]});
    let write_of = |members: Value| {
        let mut write = write("a", 1, "x");
        write.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        json!({"writes": [write]})
    };
    let without = |member: &str| {
        let mut write = write("a", 1, "x");
        write.as_object_mut().unwrap().remove(member);
        json!({"writes": [write]})
    };
    let conditions =
        |conditions: Value| json!({"conditions": conditions, "writes": [write("a", 1, "x")]});
    let writes = |number: usize| -> Vec<Value> {
        (0..number).map(|number| write(&format!("r/{number}"), 1, "x")).collect()
    };
    let cases = [
        (json!([]), "400 malformed-request"),
        (json!({}), "400 malformed-request"),
        (json!({"writes": []}), "400 malformed-request"),
        (json!({"writes": {}}), "400 malformed-request"),
        (json!({"writes": writes(65)}), "400 malformed-request"),
        (json!({"writes": writes(1), "other": 1}), "400 malformed-request"),
        (json!([[], writes(1)]), "400 malformed-request"),
        (json!({"writes": [["a", 1, "", {"text": "x"}]]}), "400 malformed-request"),
        (conditions(json!([["b", null]])), "400 malformed-request"),
        (write_of(json!({"value": ["", "x", null]})), "400 malformed-request"),
        (json!({"writes": [write("a", 1, "x"), write("a", 2, "y")]}), "400 malformed-request"),
        (without("resource"), "400 malformed-request"),
        (without("value"), "400 malformed-request"),
        (without("token"), "428 token-required"),
        (write_of(json!({"token": null})), "428 token-required"),
        (write_of(json!({"token": 0})), "400 malformed-token"),
        (write_of(json!({"token": 1_000_000_000_000_000_u64})), "400 malformed-token"),
        (write_of(json!({"token": -1})), "400 malformed-request"),
        (write_of(json!({"token": 1.5})), "400 malformed-request"),
        (write_of(json!({"token": "1"})), "400 malformed-request"),
        (write_of(json!({"holder": "a b"})), "400 malformed-holder"),
        (write_of(json!({"holder": "x".repeat(129)})), "400 malformed-holder"),
        (write_of(json!({"holder": null})), "400 malformed-request"),
        (write_of(json!({"resource": ""})), "400 malformed-name"),
        (write_of(json!({"resource": "a/../b"})), "400 malformed-name"),
        (write_of(json!({"resource": "a\u{0}b"})), "400 malformed-name"),
        (write_of(json!({"resource": "x".repeat(513)})), "400 malformed-name"),
        (write_of(json!({"other": 1})), "400 malformed-request"),
        (write_of(json!({"value": {}})), "400 malformed-request"),
        (write_of(json!({"value": "x"})), "400 malformed-request"),
        (write_of(json!({"value": {"text": "x", "base64": "eA=="}})), "400 malformed-request"),
        (write_of(json!({"value": {"base64": "!"}})), "400 malformed-request"),
        (write_of(json!({"value": {"base64": "eA"}})), "400 malformed-request"),
        (
            write_of(json!({"value": {"text": "x", "content_type": "\u{1f422}"}})),
            "400 malformed-request",
        ),
        (
            write_of(json!({"value": {"text": "x", "content_type": "x".repeat(257)}})),
            "400 malformed-request",
        ),
        (conditions(json!([{"resource": "b"}])), "400 malformed-request"),
        (conditions(json!([{"resource": "b", "version": "1"}])), "400 malformed-request"),
        (conditions(json!([{"resource": "b", "version": -1}])), "400 malformed-request"),
        (conditions(json!([{"resource": "b//c", "version": 1}])), "400 malformed-name"),
        (
            conditions(json!([
                {"resource": "b", "version": 1}, {"resource": "b", "version": null},
            ])),
            "400 malformed-request",
        ),
        (write_of(json!({"value": {"text": "x".repeat(20_000)}})), "413 value-too-large"),
    ];
    for (transaction, problem) in cases {
        let answer = transact(&world.server, &transaction).await;
        assert_eq!(answer.problem(), problem, "{transaction}");
        assert!(answer.body.len() < 1000, "an error quotes no whole value");
    }
    let post = async |headers: &[(&str, &str)], body: &str| {
        wire::request(world.server.url(), "POST", "/v1/transactions", headers, body).await
    };
    let duplicate = r#"{"writes":[{"resource":"a","resource":"b","token":1,"value":null}]}"#;
    for body in ["", "{", "\u{feff}{}", duplicate, &format!("{good}x"), &"[".repeat(10_000)] {
        assert_eq!(post(&[JSON], body).await.problem(), "400 malformed-request", "{body:.99}");
    }
    let not_utf8 = [b"\"\xff\"".as_slice()].concat();
    let answer = wire::request(world.server.url(), "POST", "/v1/transactions", &[JSON], not_utf8);
    assert_eq!(answer.await.problem(), "400 malformed-request");

    // A page of another origin may send these without asking first.
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"]
    {
        let answer = post(&[("Content-Type", content_type)], &good.to_string()).await;
        assert_eq!(answer.problem(), "415 not-json", "{content_type}");
    }
    assert_eq!(post(&[], &good.to_string()).await.problem(), "415 not-json");
    let encoded = post(&[JSON, ("Content-Encoding", "gzip")], &good.to_string()).await;
    assert_eq!(encoded.problem(), "415 encoded-value");
    let answer = world.ask("GET", "/v1/transactions", &[]).await;
    assert_eq!(answer.problem(), "405 method-not-allowed");
    assert_eq!(answer.header("allow"), Some("POST"));

    let listed = get(&world.server, "/v1/resources").await.json();
    assert_eq!(listed["resources"], json!([]), "nothing has happened");
    for path in ["/v1/fences/a", "/v1/fences/b", "/v1/fences/r/0"] {
        assert_eq!(get(&world.server, path).await.problem(), "404 not-found", "{path}");
    }
    let charset = [("Content-Type", "Application/JSON; charset=utf-8")];
    assert_eq!(post(&charset, &good.to_string()).await.status, 200, "the control");
    assert_eq!(transact(&world.server, &json!({"writes": writes(64)})).await.status, 200);
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
async fn report_accepts_and_logs_the_writes_that_it_would_refuse() {
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
    is_logged(&world.server, "accepted what would be refused").await;
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
        "storage_server_refusals_total{reason=\"transaction-refused\"} 1",
        "storage_server_refusals_total{reason=\"condition-not-met\"} 0",
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
    let (section, _) = section.split_once("\n## ").unwrap();
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

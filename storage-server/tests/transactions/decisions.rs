//! How transactions are decided, and the values that they write.

use serde_json::json;

use super::{JSON, fence, text, transact, write};
use crate::{
    database::{get, offer},
    on_both_databases::on_both_databases,
    wire,
    world::World,
};

on_both_databases!(&[] =>
    transfer_writes_both_accounts_or_none,
    rejected_transaction_advances_no_fence,
    conditions_are_compared_with_the_version,
    null_deletes_and_keeps_the_fence,
    values_have_text_or_base64,
    rejected_token_comes_before_a_condition,
    transactions_at_once_are_all_decided,
);

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
    assert_eq!(answer.problem(), "409 transaction-rejected");
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

async fn rejected_transaction_advances_no_fence(world: World) {
    offer(&world.server, "PUT", "/v1/resources/b", 34, "b").await;
    let theirs = [("Fencing-Token", "5"), ("Fencing-Holder", "somebody-else")];
    world.put("/v1/resources/c", &theirs, "c").await;
    let mixed = json!({"writes": [write("a", 9, "x"), write("b", 33, "x"), write("c", 5, "x")]});
    let answer = transact(&world.server, &mixed).await;
    assert_eq!(answer.problem(), "409 transaction-rejected");
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

async fn rejected_token_comes_before_a_condition(world: World) {
    offer(&world.server, "PUT", "/v1/resources/a", 34, "a").await;
    let both = json!({
        "conditions": [{"resource": "b", "version": 7}], "writes": [write("a", 33, "x")],
    });
    let answer = transact(&world.server, &both).await;
    assert_eq!(answer.problem(), "409 transaction-rejected");
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

//! Transactions that are rejected for their form.

use serde_json::{Value, json};

use super::{JSON, transact, write};
use crate::{database::get, wire, world::World};

#[tokio::test]
async fn malformed_transactions_are_rejected() {
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

//! What the events say.

use std::collections::BTreeSet;

use serde_json::json;
use testbed::StorageServer;

use super::{Watching, write};
use crate::{
    database::{Database, get, offer},
    metrics::value,
    wire,
    world::World,
};

const HOLDER: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn every_decision_is_reported_with_its_reason() {
    let World { server, .. } = World::on_sqlite(&[]).await;
    let (mut watching, _) = Watching::start(&server).await;
    let (value, fence) = ("/v1/resources/r", "/v1/fences/r");
    let held = ("Fencing-Holder", HOLDER);
    let token = |token| ("Fencing-Token", token);
    let numbered = |number| ("Fencing-Sequence", number);
    let mut reported = BTreeSet::new();
    // What is requested; the action, the decision, its reason, the fence and the version.
    for (method, path, headers, expected) in [
        ("PUT", value, vec![token("33"), held], ("write", "accepted", "", 33, 1)),
        ("GET", value, vec![token("34"), held], ("read", "claimed", "", 34, 1)),
        ("PUT", fence, vec![token("35"), held], ("claim", "claimed", "", 35, 1)),
        ("PUT", value, vec![token("33"), held], ("write", "rejected", "stale-token", 35, 0)),
        ("PUT", value, vec![token("35")], ("write", "rejected", "holder-conflict", 35, 0)),
        (
            "PUT",
            value,
            vec![token("36"), held, ("If-Match", "\"9\"")],
            ("write", "rejected", "version-mismatch", 36, 1),
        ),
        (
            "PUT",
            value,
            vec![token("999999999999999"), held],
            ("write", "rejected", "token-too-high", 0, 0),
        ),
        ("PUT", value, vec![token("36"), held, numbered("2")], ("write", "accepted", "", 36, 2)),
        (
            "DELETE",
            value,
            vec![token("36"), held, numbered("2")],
            ("delete", "rejected", "sequence-reused", 36, 0),
        ),
        (
            "DELETE",
            value,
            vec![token("36"), held, numbered("1")],
            ("delete", "rejected", "sequence-too-old", 36, 0),
        ),
        ("DELETE", value, vec![token("36"), held], ("delete", "accepted", "", 36, 3)),
    ] {
        wire::request(server.url(), method, path, &headers, "").await;
        let data = watching.decision().await.data;
        let number = |name: &str| data[name].as_u64().unwrap_or(0);
        let text = |name: &str| data[name].as_str().unwrap_or("").to_owned();
        let (action, decision, reason, fence, version) = expected;
        assert_eq!((text("action"), text("decision")), (action.into(), decision.into()), "{data}");
        assert_eq!((&*text("reason"), number("fence")), (reason, fence), "{data}");
        assert_eq!((number("version"), text("resource")), (version, "r".to_owned()), "{data}");
        assert_eq!(number("token").to_string(), headers[0].1, "{data}");
        assert!(text("time").starts_with("20") && text("time").ends_with('Z'), "{data}");
        // Nobody learns the proof of holding.
        let is_held = headers.contains(&held);
        assert_eq!(text("holder"), if is_held { "01234567..." } else { "" }, "{data}");
        assert!(!data.to_string().contains(HOLDER), "{data}");
        reported.insert(reason);
    }
    for reason in reported.into_iter().filter(|reason| !reason.is_empty()) {
        let page = get(&server, &format!("/problems/{reason}")).await;
        assert_eq!(page.status, 200, "{reason}");
    }
}

#[tokio::test]
async fn each_write_of_a_transaction_is_reported_and_none_as_accepted_if_it_was_rejected() {
    let World { server, .. } = World::on_sqlite(&[]).await;
    let (mut watching, _) = Watching::start(&server).await;
    let commit = async |version: u64, token: u64| {
        let transaction = json!({
            "conditions": [{"resource": "c", "version": version}],
            "writes": [
                {"resource": "a", "token": token, "value": {"text": "x"}},
                {"resource": "b", "token": 7, "value": null},
            ],
        });
        let headers = [("Content-Type", "application/json")];
        let body = transaction.to_string();
        wire::request(server.url(), "POST", "/v1/transactions", &headers, body).await.status
    };
    for (version, token, status, expected) in [
        (0, 34, 200, [json!([34, "accepted", null, 34, 1]), json!([7, "accepted", null, 7, 1])]),
        (
            0,
            33,
            409,
            [
                json!([33, "rejected", "stale-token", 34, null]),
                json!([7, "rejected", "transaction-rejected", null, null]),
            ],
        ),
        (
            9,
            34,
            412,
            [
                json!([34, "rejected", "condition-not-met", null, null]),
                json!([7, "rejected", "condition-not-met", null, null]),
            ],
        ),
    ] {
        assert_eq!(commit(version, token).await, status);
        for (resource, expected) in ["a", "b"].into_iter().zip(expected) {
            let data = watching.decision().await.data;
            assert_eq!(data["resource"], resource);
            let reported = ["token", "decision", "reason", "fence", "version"].map(|it| &data[it]);
            assert_eq!(json!(reported), expected, "{data}");
        }
    }
}

/// In the mode `report`, this shows what `enforce` would reject.
#[tokio::test]
async fn what_is_accepted_although_the_rule_rejects_it_is_reported_as_overruled() {
    let World { server, .. } = World::on_sqlite(&["--enforcement", "report"]).await;
    let (mut watching, _) = Watching::start(&server).await;
    write(&server, "r", 34).await;
    write(&server, "r", 33).await;
    wire::request(server.url(), "PUT", "/v1/resources/r", &[], "x").await;
    for (token, overruled, fence) in [
        (json!(34), json!(null), json!(34)),
        (json!(33), json!("stale-token"), json!(34)),
        (json!(null), json!(null), json!(null)),
    ] {
        let data = watching.decision().await.data;
        assert_eq!(data["decision"], "accepted");
        assert_eq!((&data["token"], &data["overruled"]), (&token, &overruled), "{data}");
        assert_eq!(data["fence"], fence, "{data}");
    }
}

/// Servers that share a database know nothing of each other's requests.
#[tokio::test]
async fn each_server_tells_its_own_decisions_only() {
    let database = Database::sqlite();
    let [one, other] = [database.serve(&[]).await, database.serve(&[]).await];
    let (mut watching, _) = Watching::start(&one).await;
    assert_eq!(write(&other, "r", 34).await, 201);
    assert_eq!(write(&one, "r", 33).await, 412);
    let data = watching.decision().await.data;
    assert_eq!((&data["reason"], &data["fence"]), (&json!("stale-token"), &json!(34)));
}

#[tokio::test]
async fn clients_that_watch_are_counted_and_limited() {
    let World { server, .. } = World::on_sqlite(&["--max-connections", "8"]).await;
    let watchers = async |server: &StorageServer| {
        let text = get(server, "/metrics").await.text();
        value(&text, "storage_server_event_streams")
    };
    assert_eq!(watchers(&server).await, 0.0);
    let (one, _) = Watching::start(&server).await;
    let (mut two, _) = Watching::start(&server).await;
    assert_eq!(watchers(&server).await, 2.0);
    let third = get(&server, "/v1/events").await;
    assert_eq!(third.problem(), "503 unavailable");
    assert_eq!(third.json()["outcome"], "none");
    assert_eq!(watchers(&server).await, 2.0, "and takes no place");
    // Others are served beside them.
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 1, "x").await.status, 201);
    two.decision().await;

    // Once a client has gone, another one may watch.
    drop(one);
    let may_watch = async || Ok(get(&server, "/v1/events").await.status == 200);
    testbed::wait::until_async(super::PATIENCE, may_watch).await.unwrap();
}

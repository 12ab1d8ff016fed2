//! What goes wrong with a lock itself.

use serde_json::{Value, json};

use super::{events, outcome, replayed};

#[tokio::test]
async fn lock_without_expiry_outlives_its_dead_client() {
    let ends = outcome("setnx-expire").await;
    let left = json!({"locks_without_end": 1, "acquired_after_the_crash": 0});
    let ended = json!({"locks_without_end": 0, "acquired_after_the_crash": 1});
    assert_eq!(ends, json!({"setnx-then-expire": left, "one-script": ended}));
}

#[tokio::test]
async fn advisory_lock_behind_a_pooler_has_two_holders() {
    let record = replayed("advisory-lock-pooler").await;
    let shared = json!({"holders_at_once": 2, "tokens_issued": 0});
    let alone = json!({"holders_at_once": 1, "tokens_issued": 2});
    assert_eq!(record["outcome"], json!({"advisory-lock": shared, "table": alone}));
    let marked: Vec<_> = events(&record, "beside").collect();
    assert_eq!(marked, [("advisory-lock", "client2", &json!("client 1"))]);
}

#[tokio::test]
async fn unique_row_blocks_or_overwrites_without_tokens() {
    let ends = outcome("sql-unique-index").await;
    let end = |acquired, lost| json!({"acquired_after_the_owner": acquired, "updates_lost": lost});
    let expected = json!({
        "unique-index": end(0, 0), "with-expiry": end(1, 1), "with-tokens": end(1, 0),
    });
    assert_eq!(ends, expected);
}

pub(super) fn deleted() -> Value {
    json!({"locks_of_others_deleted": 1, "holders_at_once": 2})
}

pub(super) fn kept() -> Value {
    json!({"locks_of_others_deleted": 0, "holders_at_once": 1})
}

#[tokio::test]
async fn del_frees_the_lock_of_another_client() {
    let record = replayed("foreign-release").await;
    assert_eq!(record["outcome"], json!({"del": deleted(), "one-script": kept()}));
    let marked: Vec<_> = events(&record, "beside").collect();
    assert_eq!(marked, [("del", "client3", &json!("client 2"))]);
}

#[tokio::test]
async fn work_longer_than_the_ttl_is_exclusive_only_if_the_lease_is_renewed() {
    let record = replayed("outlived-lease").await;
    let ends = &record["outcome"];
    for (world, at_work_at_once) in [("without-renewal", 2), ("with-renewal", 1)] {
        assert_eq!(ends[world]["at_work_at_once"], at_work_at_once, "{world}");
        let count = |fact: &str| ends[world][fact].as_u64().unwrap();
        assert!(count("worked_ms") > 2 * count("ttl_ms"), "{ends}");
    }
    let marked: Vec<_> = events(&record, "beside").collect();
    assert_eq!(marked, [("without-renewal", "client2", &json!("client 1"))]);
}

#[tokio::test]
async fn handover_to_100_waiters_is_cheap_only_if_they_queue() {
    let ends = outcome("thundering-herd").await;
    let scripts = ["woken-at-once", "fair"].map(|world| {
        assert_eq!(ends[world]["handovers"], 100, "{world}");
        ends[world]["scripts_per_handover"].as_u64().unwrap()
    });
    assert!(scripts[0] >= 20 && scripts[1] <= 10, "{scripts:?}");
}

//! What goes wrong with a lock itself.

use serde_json::json;

use super::outcome;

#[tokio::test]
async fn a_lock_without_expiry_outlives_its_dead_client() {
    let ends = outcome("setnx-expire").await;
    let left = json!({"lock_ends_in_ms": null, "acquired_after_the_crash": 0});
    assert_eq!(ends["setnx-then-expire"], left);
    let one_script = &ends["one-script"];
    assert!(one_script["lock_ends_in_ms"].as_u64().is_some_and(|millis| millis <= 1_500));
    assert_eq!(one_script["acquired_after_the_crash"], 1);
}

#[tokio::test]
async fn a_del_frees_the_lock_of_another() {
    let deleted = json!({"locks_of_others_deleted": 1, "holders_at_once": 2});
    let kept = json!({"locks_of_others_deleted": 0, "holders_at_once": 1});
    let ends = outcome("foreign-release").await;
    assert_eq!(ends, json!({"del": deleted, "one-script": kept}));
    let ends = outcome("get-then-del").await;
    assert_eq!(ends, json!({"get-then-del": deleted, "one-script": kept}));
}

#[tokio::test]
async fn work_longer_than_the_ttl_is_alone_only_if_the_lease_is_renewed() {
    let ends = outcome("outlived-lease").await;
    for (world, at_work_at_once) in [("without-renewal", 2), ("with-renewal", 1)] {
        assert_eq!(ends[world]["at_work_at_once"], at_work_at_once, "{world}");
        let count = |fact: &str| ends[world][fact].as_u64().unwrap();
        assert!(count("worked_ms") > 2 * count("ttl_ms"), "{ends}");
    }
}

#[tokio::test]
async fn a_handover_to_100_waiters_is_dear_if_all_are_woken_and_cheap_if_they_queue() {
    let ends = outcome("thundering-herd").await;
    let scripts = ["woken-at-once", "fair"].map(|world| {
        assert_eq!(ends[world]["handovers"], 100, "{world}");
        ends[world]["scripts_per_handover"].as_u64().unwrap()
    });
    assert!(scripts[0] >= 20 && scripts[1] <= 10, "{scripts:?}");
}

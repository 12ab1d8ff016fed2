//! A PostgreSQL that fails over beneath the storage.

use std::env;

use serde_json::{Value, json};

use super::{facts, outcome, tokens::counts};

/// How a scenario ended in each of its replays: one, unless `FENCED_RUNS` says otherwise.
async fn outcomes(scenario: &str) -> Vec<Value> {
    let runs = env::var("FENCED_RUNS").map_or(1, |runs| runs.parse().unwrap());
    let mut ends = Vec::new();
    for run in 1..=runs {
        ends.push(outcome(scenario).await);
        eprintln!("{scenario}, run {run} of {runs}: {}", ends[ends.len() - 1]);
    }
    ends
}

#[tokio::test]
async fn acknowledged_write_outlives_the_primary_only_if_a_standby_has_it() {
    for ends in outcomes("failover-sync").await {
        let [lost, kept] = ["asynchronous", "synchronous"].map(|world| facts(&ends[world]));
        assert_eq!(lost, ("by client 1".to_owned(), 33, [1, 0, 1]));
        assert_eq!(kept, ("by client 2".to_owned(), 34, [0, 1, 0]));
        for end in ends.as_object().unwrap().values() {
            let [without, after] = ["ms_without_a_write", "ms_from_promotion_to_write"]
                .map(|fact| end[fact].as_u64().unwrap());
            assert!(after <= 30_000, "{end}");
            // The primary's lock has to expire before, after 12 s, and a standby has to be promoted.
            assert!(without <= 60_000, "{end}");
        }
    }
}

#[tokio::test]
async fn lost_fence_is_noticed_only_if_its_token_comes_again_with_another_holder() {
    for ends in outcomes("failover-async").await {
        assert_eq!(counts(&ends["33-first"])[1..], [0, 0, 0, 1]);
        assert_eq!(ends["33-first"]["stale_writes_accepted"], 1);
        assert_eq!(ends["33-first"]["value"], "by client 1");
        assert_eq!(counts(&ends["token-alone"]), [2, 1, 0, 0, 1]);
        assert_eq!(counts(&ends["token-and-holder"]), [1, 1, 1, 0, 0]);
    }
}

#[tokio::test]
async fn both_sides_of_a_split_acknowledge_writes_unless_a_standby_is_required() {
    let end = |claims: u64, writes: u64, undecided: u64| {
        json!({
            "value": "by client 2", "token": 34, "writes_by_the_new_primary": 1,
            "claims_by_the_old_primary": claims, "writes_by_the_old_primary": writes,
            "undecided_by_the_old_primary": undecided,
        })
    };
    for ends in outcomes("split-network").await {
        assert_eq!(ends, json!({"asynchronous": end(1, 1, 0), "synchronous": end(0, 0, 2)}));
    }
}

//! What goes wrong when the lock service forgets which tokens it has issued.

use serde_json::{Value, json};

use super::outcome;

/// Writes accepted; tokens issued twice, holder conflicts, leases lost, updates lost.
pub(super) fn counts(end: &Value) -> [u64; 5] {
    ["version", "tokens_given_twice", "holder_conflicts", "leases_lost", "updates_lost"]
        .map(|fact| end[fact].as_u64().unwrap())
}

#[tokio::test]
async fn token_that_a_failover_issues_twice_is_rejected_if_holders_are_known() {
    let ends = outcome("failover").await;
    assert_eq!(counts(&ends["token-alone"]), [2, 1, 0, 0, 1]);
    assert_eq!(ends["token-alone"]["token"], 33);
    assert_eq!(counts(&ends["token-and-holder"]), [1, 1, 1, 1, 0]);
    assert_eq!(ends["token-and-holder"]["token"], 34, "client 2 has a higher token");
    assert_eq!(ends["token-and-holder"]["value"], json!("by client 2"));
}

#[tokio::test]
async fn lost_counter_loses_no_update_if_holders_are_known_or_it_starts_at_the_clock() {
    let ends = outcome("counter-lost").await;
    assert_eq!(counts(&ends["from-0"]), [2, 1, 0, 0, 1]);
    assert_eq!(counts(&ends["from-0-reissued"]), [1, 1, 1, 1, 0]);
    assert_eq!(counts(&ends["from-the-clock"]), [1, 0, 0, 1, 0]);
    assert_eq!([&ends["from-0"]["token"], &ends["from-0-reissued"]["token"]], [1, 2]);
}

//! What goes wrong with a lock that several nodes keep.

use serde_json::json;

use super::{TWINS, events, facts, outcome, replayed, tokens::counts};

#[tokio::test]
async fn majority_of_the_nodes_that_answer_is_not_a_majority_of_all() {
    let record = replayed("redlock-minority-down").await;
    let end = |holders: u64, taken: u64, lost: u64| {
        json!({
            "value": "by client 2", "holders_at_once": holders, "taken_by_a_minority": taken,
            "updates_lost": lost,
        })
    };
    let ends = json!({"majority-of-answers": end(2, 2, 1), "majority-of-all": end(1, 0, 0)});
    assert_eq!(record["outcome"], ends);
    let marked: Vec<_> = events(&record, "beside").collect();
    assert_eq!(marked, [("majority-of-answers", "client2", &json!("client 1"))]);
}

#[tokio::test]
async fn grant_whose_reply_was_lost_is_released_if_all_nodes_are_released() {
    let end = |taken: u64, writes: u64| json!({"taken_by_nobody": taken, "writes": writes});
    let ends = json!({"where-granted": end(2, 0), "everywhere": end(0, 2)});
    assert_eq!(outcome("redlock-lost-reply").await, ends);
}

#[tokio::test]
async fn restarted_node_grants_the_lock_again_only_if_it_votes_without_its_counter() {
    let ends = outcome("redlock-restart").await;
    assert_eq!(counts(&ends["plain"]), [2, 0, 0, 0, 1]);
    assert_eq!(counts(&ends["by-hand"]), [2, 1, 0, 0, 1]);
    assert_eq!(ends["by-hand"]["token"], 33);
    assert_eq!(counts(&ends["by-hand-with-holders"]), [1, 1, 1, 1, 0]);
    assert_eq!(ends["by-hand-with-holders"]["token"], 34);
    assert_eq!(counts(&ends["no-vote"]), [2, 0, 0, 0, 0]);
    assert!(ends["no-vote"]["token"].as_u64().unwrap() >= 34, "{ends}");
    assert_eq!(counts(&ends["node-admit"]), [1, 0, 0, 0, 0], "client 1 came too late");
    assert_eq!(ends["node-admit"]["token"], 34);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn clock_that_jumps_lets_two_clients_in_and_the_storage_rejects_the_first() {
    let ends = outcome("redlock-clock-jump").await;
    let [unfenced, fenced] = TWINS.map(|world| &ends[world]);
    assert_eq!(facts(unfenced), ("by client 1".to_owned(), 33, [1, 0, 1]));
    assert_eq!(facts(fenced), ("by client 2".to_owned(), 34, [0, 1, 0]));
    assert_eq!([unfenced, fenced].map(|end| &end["holders_at_once"]), [2, 2]);
}

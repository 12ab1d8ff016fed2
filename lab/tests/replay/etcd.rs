//! Locks in etcd.

use serde_json::json;

use super::{TWINS, events, outcome, replayed, wire};

#[tokio::test]
async fn client_whose_lease_expired_overwrites_unless_the_storage_checks_the_revision() {
    let record = replayed("etcd-paused").await;
    let counts = TWINS.map(|world| {
        let end = &record["outcome"][world];
        ["value", "stale_writes_accepted", "stale_writes_rejected", "updates_lost"]
            .map(|fact| end[fact].clone())
    });
    assert_eq!(counts[0], [json!("by client 1"), json!(1), json!(0), json!(1)]);
    assert_eq!(counts[1], [json!("by client 2"), json!(0), json!(1), json!(0)]);
    assert_eq!(events(&record, "beside").count(), 0, "etcd let one client in at a time");
    let acquire = ["POST http://127.0.0.1:", "/v3/kv/txn", "create_revision", "curl -gi -X POST"];
    wire::assert_shown(&record, "fenced", &[("client1", "acquired", &acquire)]).await;
    wire::assert_small(&record);
}

#[tokio::test]
async fn restored_etcd_issues_a_token_twice_and_the_holder_averts_the_damage() {
    let ends = outcome("etcd-restored").await;
    for (world, conflicts, lost) in [("token-alone", 0, 1), ("token-and-holder", 1, 0)] {
        assert_eq!(ends[world]["tokens_given_twice"], 1, "{world}");
        assert_eq!(ends[world]["holder_conflicts"], conflicts, "{world}");
        assert_eq!(ends[world]["updates_lost"], lost, "{world}");
    }
}

//! Locks in ZooKeeper.

use serde_json::json;

use super::{TWINS, events, outcome, replayed};

#[tokio::test]
async fn client_whose_session_expired_overwrites_unless_the_storage_checks_the_czxid() {
    let record = replayed("zookeeper-session").await;
    let counts = TWINS.map(|world| {
        let end = &record["outcome"][world];
        ["value", "stale_writes_accepted", "stale_writes_rejected", "updates_lost"]
            .map(|fact| end[fact].clone())
    });
    assert_eq!(counts[0], [json!("by client 1"), json!(1), json!(0), json!(1)]);
    assert_eq!(counts[1], [json!("by client 2"), json!(0), json!(1), json!(0)]);
    assert_eq!(events(&record, "beside").count(), 0, "ZooKeeper let one client in at a time");
}

#[tokio::test]
async fn lost_connection_is_no_lost_session() {
    let ends = outcome("zookeeper-reconnect").await;
    for (world, at_work_at_once, released) in [("session-expired", 2, 0), ("session-alive", 1, 1)] {
        assert_eq!(ends[world]["at_work_at_once"], at_work_at_once, "{world}");
        assert_eq!(ends[world]["released_its_own"], released, "{world}");
    }
}

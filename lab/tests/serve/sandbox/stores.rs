//! The stores that a sandbox can have beside a storage server on SQLite.

use serde_json::json;

use super::{Sandbox, count, fact, opening_with};
use crate::serve::Server;

#[tokio::test]
async fn table_of_postgres_rejects_a_claim_and_a_write_with_an_old_token() {
    let server = Server::start();
    let sandbox =
        Sandbox::open(&server, &opening_with("a", &json!({"store": "postgres-table"}))).await;
    sandbox.act(&["client 1: acquire", "client 1: read", "lock service: restart empty"]).await;
    sandbox.act(&["client 2: acquire", "client 2: read", "client 1: write"]).await;
    sandbox.act(&["client 1: read", "client 2: write"]).await;
    let (record, said) = sandbox.end().await;
    assert_eq!(["rejected", "claim-rejected"].map(|event| count(&record, event)), [3, 1]);
    assert_eq!(fact(&record, "value"), "2: client 2");
    assert!(said.ends_with("tasks: holders, reject\n"), "{said}");
}

#[tokio::test]
async fn storage_server_on_postgres_rejects_a_write_with_an_old_token() {
    check_server_on("postgres").await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn storage_server_on_object_storage_rejects_a_write_with_an_old_token() {
    check_server_on("object-storage").await;
}

/// With the fence, the late write is rejected. The negative control: without it, an update is lost.
async fn check_server_on(store: &str) {
    let server = Server::start();
    for (fence, lost, tasks) in [("on", 0, "holders, reject"), ("off", 1, "holders, lose")] {
        let settings = json!({"store": store, "fence": fence});
        let sandbox = Sandbox::open(&server, &opening_with(fence, &settings)).await;
        sandbox.until_recorded("store-is").await;
        sandbox.act(&["client 1: acquire", "client 1: read", "lock service: restart empty"]).await;
        sandbox.act(&["client 2: acquire", "client 2: read", "client 2: write"]).await;
        sandbox.act(&["client 1: write"]).await;
        let (record, said) = sandbox.end().await;
        assert_eq!(fact(&record, "updates_lost"), lost, "{record}");
        assert_eq!(count(&record, "store-is"), 1);
        assert!(said.ends_with(&format!("tasks: {tasks}\n")), "{said}");
    }
}

//! What the doctor finds of the slots of a Redis Cluster.

use testbed::RedisCluster;

use super::examine;

const SLOT: &str = "42";

#[tokio::test]
async fn slots_that_move_are_found_on_every_node() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let url = cluster.url();
    examine(&url).await.assert_finds("slots", "ok", "no slot moves");

    let mut ids = Vec::new();
    for node in cluster.nodes() {
        ids.push(node.command::<String>(&["CLUSTER", "MYID"]).await.unwrap());
    }
    // The first node has the slot. The doctor is connected to it, and asks the others.
    let nodes = cluster.nodes();
    let address = |node: usize| nodes[node].address().unwrap();
    let moves = format!("slot {SLOT} moves from {} to {}", address(0), address(2));
    let broken_off = format!("slot {SLOT}, from {} to {}, was broken off", address(0), address(2));
    for (node, state, other, expected) in
        [(2, "IMPORTING", 0, &broken_off), (0, "MIGRATING", 2, &moves)]
    {
        let set = ["CLUSTER", "SETSLOT", SLOT, state, &ids[other]];
        let _: () = nodes[node].command(&set).await.unwrap();
        let report = examine(&url).await;
        report.assert_finds("slots", "warning", expected);
    }
    let stable = ["CLUSTER", "SETSLOT", SLOT, "STABLE"];
    let _: () = nodes[2].command(&stable).await.unwrap();
    examine(&url).await.assert_finds("slots", "warning", &broken_off);
    let _: () = nodes[0].command(&stable).await.unwrap();
    examine(&url).await.assert_finds("slots", "ok", "no slot moves");
}

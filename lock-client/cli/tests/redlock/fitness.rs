//! Servers that are not fit to be nodes: a replica, one that has a replica, and one that evicts keys.

use testbed::{Redis, wait::until_async};

use super::nodes::{ALWAYS, Nodes, TTL};
use crate::command::{PATIENCE, assert_failed, lock_client};

async fn set_policy(node: &Redis, policy: &str) {
    node.command::<()>(&["CONFIG", "SET", "maxmemory-policy", policy]).await.unwrap();
}

#[tokio::test]
async fn unfit_server_becomes_no_node() {
    let nodes = Nodes::start(3, &ALWAYS).await;
    let init = ["init", "--max-ttl", TTL];
    set_policy(&nodes.0[1], "allkeys-lru").await;
    assert_failed(&nodes.command(&init).await, 64, "it evicts keys");
    set_policy(&nodes.0[1], "noeviction").await;
    let replica = Redis::replica_of(&nodes.0[2]).await.unwrap();
    assert_failed(&nodes.command(&init).await, 64, "it is a replica, or has one");
    let urls = [nodes.0[0].url(), nodes.0[1].url(), replica.redis().url()].join(" ");
    let with_replica = lock_client(&["node", "init", "--max-ttl", TTL, "--locks", &urls]).await;
    assert_failed(&with_replica, 64, "it is a replica, or has one");
    for node in &nodes.0 {
        assert_eq!(node.command::<u64>(&["DBSIZE"]).await.unwrap(), 0, "nothing was written");
    }
}

#[tokio::test]
async fn node_that_becomes_unfit_is_no_voter_of_the_status_and_is_not_admitted() {
    let mut nodes = Nodes::cluster_granting("500ms", &ALWAYS).await;
    set_policy(&nodes.0[0], "volatile-ttl").await;
    assert_eq!(nodes.states().await, ["evicting", "voting", "voting"]);
    let degraded = nodes.command(&["status"]).await;
    assert_failed(&degraded, 81, "degraded: 2 of 3 nodes may vote");
    let _replica = Redis::replica_of(&nodes.0[1]).await.unwrap();
    assert_eq!(nodes.states().await, ["evicting", "replicated", "voting"]);
    assert_eq!(nodes.command(&["status"]).await.status.code(), Some(69));

    nodes.0[0].restart().await.unwrap();
    set_policy(&nodes.0[0], "allkeys-lru").await;
    assert_failed(&nodes.admit(0).await, 64, "it evicts keys");
    set_policy(&nodes.0[0], "noeviction").await;
    assert!(nodes.admit(0).await.status.success());
}

/// The reason: the process keeps its `run_id` while a failover and the failback bring old counters.
#[tokio::test]
async fn failover_and_failback_bring_a_voter_with_old_counters() {
    const HIGH: u64 = 900_000_000_000_000;
    let nodes = Nodes::cluster(&[]).await;
    nodes.set_counters(HIGH).await;
    let primary = &nodes.0[0];
    let replica = Redis::replica_of(primary).await.unwrap();
    replica.promote().await.unwrap();
    // Node 2 does not vote and misses the release, and the replica misses this token.
    assert_eq!(nodes.token_without(2).await, Ok(HIGH + 1));
    nodes.0[2].set("fenced:{r}:token", &HIGH.to_string()).await.unwrap();
    let port = replica.redis().address().unwrap().port().to_string();
    primary.command::<()>(&["REPLICAOF", "127.0.0.1", &port]).await.unwrap();
    let is_old = async || Ok(nodes.counter(0).await == Some(HIGH));
    until_async(PATIENCE, is_old).await.unwrap();
    primary.command::<()>(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    assert_eq!(nodes.token_without(1).await, Ok(HIGH + 1), "a token that was issued before");
}

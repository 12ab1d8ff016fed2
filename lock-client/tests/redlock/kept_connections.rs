//! The connections of leases while a node hangs.

use std::time::Duration;

use lock_client::{Locks, redlock::Redlock};
use testbed::{RedlockNodes, wait::until_async};
use tokio::time::sleep;

use super::cluster::cluster_of;
use crate::{kept_connections::connections, lock_service::unrenewed, names::name};

const SOON: Duration = Duration::from_secs(20);

fn client(cluster: &RedlockNodes, answer_within: Duration) -> Locks {
    Locks::new(Redlock::open(cluster.urls()).unwrap().answer_within(answer_within))
}

/// The node hangs for longer than a silent connection is kept, and other clients have all further ones.
#[tokio::test]
async fn connection_to_a_node_is_kept_through_a_hang() {
    let mut cluster = cluster_of(3).await;
    let locks = client(&cluster, Duration::from_millis(200));
    let lease = locks.acquire(&name("r"), unrenewed(60_000)).await.unwrap();
    locks.wait_for_background().await;
    let url = cluster.nodes()[0].url();
    let _other = testbed::redis::connect(&*url).await.unwrap();
    let limit = ["CONFIG", "SET", "maxclients", "1"];
    cluster.nodes()[0].command::<()>(&limit).await.unwrap();
    cluster.nodes_mut()[0].process().pause().await.unwrap();
    // A silent connection is kept for ten answer time-outs.
    sleep(Duration::from_secs(4)).await;
    cluster.nodes_mut()[0].process().resume().unwrap();
    let counts_on_all = async || {
        let held = locks.status(&name("r")).await?.held;
        Ok(held.and_then(|held| held.nodes) == Some(3))
    };
    until_async(SOON, counts_on_all).await.unwrap();
    // The control: there is no other connection.
    assert!(testbed::redis::connect(&*url).await.is_err());
    lease.release().await.unwrap();
}

#[tokio::test]
async fn node_that_hangs_delays_no_check_of_another_connection() {
    let mut cluster = cluster_of(3).await;
    let locks = client(&cluster, Duration::from_secs(5));
    let lease = locks.acquire(&name("r"), unrenewed(60_000)).await.unwrap();
    cluster.nodes_mut()[0].process().pause().await.unwrap();
    // A check waits for its answer.
    sleep(Duration::from_secs(2)).await;
    let node = &cluster.nodes()[1];
    for number in connections(node).await.unwrap() {
        let _: u64 = node.command(&["CLIENT", "KILL", "ID", &number]).await.unwrap();
    }
    let is_made_again = async || Ok(!connections(node).await?.is_empty());
    until_async(Duration::from_secs(4), is_made_again).await.unwrap();
    lease.release().await.unwrap();
}

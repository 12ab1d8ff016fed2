//! A cluster of private nodes, its clients, and the keys of the lock `r` on the nodes.

use std::time::Duration;

use futures_util::future::join_all;
use lock_client::{Locks, redlock::Redlock};
use testbed::{NodeKind, Redis, RedlockNodes, wait::until_async};

use crate::start_cluster::start_cluster;

pub(crate) const LOCK: &str = "fenced:{r}:lock";
pub(crate) const COUNTER: &str = "fenced:{r}:token";
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest ttl of the clusters here.
const MAX_TTL: Duration = Duration::from_secs(600);

/// Starts a cluster of so many nodes without persistence.
pub(crate) async fn cluster_of(nodes: usize) -> RedlockNodes {
    let cluster = RedlockNodes::start(&vec![NodeKind::FORGETFUL; nodes]).await.unwrap();
    start_cluster(&cluster, MAX_TTL).await;
    cluster
}

pub(crate) fn locks_of(cluster: &RedlockNodes) -> Locks {
    Locks::new(Redlock::open(cluster.urls()).unwrap())
}

/// Returns the nodes' values at a key; `None` where there is none.
pub(crate) async fn values(nodes: &[Redis], key: &str) -> Vec<Option<String>> {
    let values = nodes.iter().map(async |node| node.command(&["GET", key]).await.unwrap());
    join_all(values).await
}

/// Sets each node's counter.
pub(crate) async fn set_counters(cluster: &RedlockNodes, counters: &[u64]) {
    for (node, counter) in cluster.nodes().iter().zip(counters) {
        node.set(COUNTER, &counter.to_string()).await.unwrap();
    }
}

/// Returns another URL of a node.
pub(crate) fn another_url(node: &Redis, name: &str) -> String {
    let alias = node.socket().with_file_name(name);
    std::os::unix::fs::symlink(node.socket(), &alias).unwrap();
    format!("redis+unix://{}", alias.display())
}

/// Waits until no node has a lock.
pub(crate) async fn until_free(nodes: &[Redis]) {
    let free = async || {
        let keys = nodes.iter().map(async |node| node.command(&["KEYS", "*:lock"]).await);
        let keys: Vec<anyhow::Result<Vec<String>>> = join_all(keys).await;
        Ok(keys.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat().is_empty())
    };
    until_async(PATIENCE, free).await.unwrap();
}

/// Waits until all nodes have the same value at a key, and returns it.
pub(crate) async fn until_equal(nodes: &[Redis], key: &str) -> String {
    let equal = async || {
        let values = values(nodes, key).await;
        Ok(values.iter().all(|value| value.is_some() && *value == values[0]))
    };
    until_async(PATIENCE, equal).await.unwrap();
    values(nodes, key).await.swap_remove(0).unwrap()
}

/// Returns how many scripts a node has run.
pub(crate) async fn scripts_run(node: &Redis) -> u64 {
    crate::lock_service::scripts_run(node).await
}

/// How often a node's record was read: by each new connection, and by each search for members.
pub(crate) async fn records_read(node: &Redis) -> u64 {
    let info: String = node.command(&["INFO", "commandstats"]).await.unwrap();
    let calls = info.lines().find_map(|line| {
        let calls = line.strip_prefix("cmdstat_hmget:calls=")?;
        calls.split_once(',')?.0.parse().ok()
    });
    calls.unwrap_or_default()
}

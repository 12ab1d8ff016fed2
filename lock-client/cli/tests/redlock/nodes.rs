//! The nodes of a cluster that the command maintains, and their lock `r`.

use std::process::Output;

use futures_util::future::try_join_all;
use lock_client::{Locks, Terms, Ttl, redlock::Redlock};
use serde_json::Value;
use testbed::Redis;

use crate::command::{events, lock_client};

/// The longest ttl of the cluster, and the ttl of its locks here.
pub(super) const TTL: &str = "2s";

pub(super) fn terms() -> Terms {
    Terms::new(Ttl::from_secs(2).unwrap())
}

/// The settings of a Redis that has every write on disk before it answers.
pub(super) const ALWAYS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Private nodes.
pub(super) struct Nodes(pub(super) Vec<Redis>);

impl Nodes {
    /// Starts nodes, with further arguments of `redis-server`.
    pub(super) async fn start(number: usize, arguments: &[&str]) -> Self {
        let starting = (0..number).map(|_| Redis::start_with(arguments));
        Self(try_join_all(starting).await.unwrap())
    }

    /// Starts a cluster of three nodes.
    pub(super) async fn cluster(arguments: &[&str]) -> Self {
        Self::cluster_granting(TTL, arguments).await
    }

    /// The same with another longest ttl, for which an admission waits.
    pub(super) async fn cluster_granting(max_ttl: &str, arguments: &[&str]) -> Self {
        Self::start(3, arguments).await.initialized(max_ttl).await
    }

    /// Starts a cluster of so many nodes that keep nothing on disk.
    pub(super) async fn cluster_of(number: usize, max_ttl: &str) -> Self {
        Self::start(number, &[]).await.initialized(max_ttl).await
    }

    async fn initialized(self, max_ttl: &str) -> Self {
        let started = self.command(&["init", "--max-ttl", max_ttl]).await;
        assert!(started.status.success(), "{started:?}");
        self
    }

    pub(super) fn urls(&self) -> Vec<String> {
        self.0.iter().map(Redis::url).collect()
    }

    /// Runs `lock-client node` to its end.
    pub(super) async fn command(&self, arguments: &[&str]) -> Output {
        let urls = self.urls().join(" ");
        lock_client(&[&["node", arguments[0], "--locks", &urls], &arguments[1..]].concat()).await
    }

    pub(super) async fn admit(&self, node: usize) -> Output {
        self.command(&["admit", "--node", &self.0[node].url()]).await
    }

    /// The lines of `node status`, one for each node.
    pub(super) async fn status(&self) -> Vec<Value> {
        let mut lines = events(&self.command(&["status", "--json"]).await);
        lines.pop().expect("there is a line for the cluster");
        lines
    }

    pub(super) async fn states(&self) -> Vec<String> {
        let states = self.status().await;
        states.iter().map(|node| node["state"].as_str().unwrap().to_owned()).collect()
    }

    /// The states of these nodes, which are a cluster, or should become one.
    pub(super) async fn states_of(&self, nodes: &[usize]) -> Vec<String> {
        let urls: Vec<_> = nodes.iter().map(|&node| self.0[node].url()).collect();
        let urls = urls.join(" ");
        let status = ["node", "status", "--json", "--no-counters", "--locks", &urls];
        let nodes = events(&lock_client(&status).await);
        let states = nodes.iter().filter_map(|node| node["state"].as_str());
        states.map(ToOwned::to_owned).collect()
    }

    /// Acquires and releases a lock while a node has no vote. Returns the token or the error.
    pub(super) async fn token_without(&self, node: usize) -> Result<u64, String> {
        let rename = async |from, to| {
            self.0[node].command::<()>(&["RENAME", from, to]).await.unwrap();
        };
        rename("fenced:node", "aside").await;
        let token = self.token().await;
        rename("aside", "fenced:node").await;
        token
    }

    /// Acquires and releases a lock. Returns the token or the error.
    pub(super) async fn token(&self) -> Result<u64, String> {
        let locks = Locks::new(Redlock::open(self.urls()).unwrap());
        let acquired = locks.acquire(&"r".parse().unwrap(), terms().no_wait()).await;
        let token = match acquired {
            Ok(lease) => {
                let token = lease.token().unwrap().as_u64();
                lease.release().await.unwrap();
                Ok(token)
            }
            Err(error) => Err(format!("{:#}", anyhow::Error::from(error))),
        };
        locks.wait_for_background().await;
        token
    }

    /// The cluster in a node's record.
    pub(super) async fn cluster_of_node(&self, node: usize) -> String {
        let roster: String =
            self.0[node].command(&["HGET", "fenced:node", "roster"]).await.unwrap();
        roster.split_once(' ').unwrap().0.to_owned()
    }

    /// The fields of a node's record.
    pub(super) async fn fields(&self, node: usize) -> Vec<String> {
        self.0[node].command(&["HKEYS", "fenced:node"]).await.unwrap()
    }

    pub(super) async fn counter(&self, node: usize) -> Option<u64> {
        self.0[node].command(&["GET", "fenced:{r}:token"]).await.unwrap()
    }

    pub(super) async fn set_counters(&self, value: u64) {
        for node in &self.0 {
            node.set("fenced:{r}:token", &value.to_string()).await.unwrap();
        }
    }
}

//! A Redis Cluster.

use std::{ops::RangeInclusive, time::Duration};

use anyhow::Context;

use super::{listener::Door, server::Redis};
use crate::wait::until_async;

const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a node may be silent before the others count it as failed.
const NODE_TIMEOUT_MS: &str = "2000";
/// The hash slots of each primary, of 16 384.
const SLOTS: [RangeInclusive<u16>; 3] = [0..=5460, 5461..=10922, 10923..=16383];

/// A Cluster of three primaries without replicas, on free ports of 127.0.0.1.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts the three, and waits until they serve all slots.
    ///
    /// # Errors
    /// If `redis-server` isn't installed or doesn't start, or the three don't become a Cluster.
    pub async fn start() -> anyhow::Result<Self> {
        let mut nodes = Vec::new();
        for (number, slots) in SLOTS.iter().enumerate() {
            let arguments = ["--cluster-node-timeout", NODE_TIMEOUT_MS];
            let node = Redis::start_at(Door::ClusterNode, &arguments).await?;
            // Nodes with equal epochs would first have to agree on different ones.
            let epoch = (number + 1).to_string();
            node.command::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await?;
            let [first, last] = [slots.start(), slots.end()].map(u16::to_string);
            node.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await?;
            nodes.push(node);
        }
        for other in &nodes[1..] {
            let (port, bus) =
                other.listener.cluster_ports().context("a node of a Cluster has two ports")?;
            let [port, bus] = [port, bus].map(|port| port.to_string());
            nodes[0].command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await?;
        }
        let cluster = Self { nodes };
        cluster.ready().await?;
        Ok(cluster)
    }

    /// Returns the nodes.
    pub fn nodes(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        let addresses = self.nodes.iter().filter_map(Redis::address);
        let addresses: Vec<_> = addresses.map(|address| address.to_string()).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// Returns the number, from 0, of the node that has a key's slot.
    ///
    /// # Errors
    /// If the first node doesn't answer.
    pub async fn node_of(&self, key: &str) -> anyhow::Result<usize> {
        let slot: u16 = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]).await?;
        SLOTS.iter().position(|slots| slots.contains(&slot)).context("there are 16 384 slots")
    }

    /// Waits until every node reports that the Cluster serves all slots.
    ///
    /// # Errors
    /// If one doesn't within half a minute.
    pub async fn ready(&self) -> anyhow::Result<()> {
        for node in &self.nodes {
            until_async(READY_TIMEOUT, async || {
                let info: String = node.command(&["CLUSTER", "INFO"]).await?;
                let expected =
                    ["cluster_state:ok", "cluster_known_nodes:3", "cluster_slots_ok:16384"];
                Ok(expected.iter().all(|expected| info.lines().any(|line| line == *expected)))
            })
            .await
            .context("the Cluster did not start to serve all slots")?;
        }
        Ok(())
    }
}
